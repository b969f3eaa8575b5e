//! What the last contents were found to be, so that working on one again does not find it out again.
//!
//! A content is recognised by all its bytes, never by a time stamp or a sum. What is kept is bounded.

use std::cell::RefCell;
use std::collections::VecDeque;

/// Less than this costs nothing worth keeping.
pub const LEAST: usize = 1024;
/// The most bytes of one content, and of all of them together.
pub const MOST: usize = 1 << 20;
/// The most contents.
const COUNT: usize = 64;

/// The last contents, and what was found of each. The latest first.
#[derive(Debug)]
pub struct Recent<T>(RefCell<VecDeque<(Box<[u8]>, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Recent<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(RefCell::new(VecDeque::new()))
    }

    /// What was found of this content, if `fits` takes it.
    pub fn find<U>(&self, content: &[u8], fits: impl Fn(&T) -> Option<U>) -> Option<U> {
        let mut all = self.0.borrow_mut();
        let at = all.iter().position(|(known, found)| known.len() == content.len() && **known == *content && fits(found).is_some())?;
        let (known, found) = all.remove(at)?;
        let fitting = fits(&found);
        all.push_front((known, found));
        fitting
    }

    /// Asks a content of which this was found, if one is still here.
    pub fn ask<U>(&self, found: impl Fn(&T) -> bool, question: impl FnOnce(&[u8]) -> U) -> Option<U> {
        self.0.borrow().iter().find(|(_, known)| found(known)).map(|(content, _)| question(content))
    }

    /// Keeps what was found of a content, where it is worth it.
    pub fn keep(&self, content: &[u8], found: T) {
        if !(LEAST..=MOST).contains(&content.len()) {
            return;
        }
        let mut all = self.0.borrow_mut();
        all.truncate(COUNT - 1);
        all.push_front((content.into(), found));
        let mut bytes = 0;
        all.retain(|(known, _)| {
            bytes += known.len();
            bytes <= MOST
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_known_by_its_bytes_and_the_latest_ones_are_kept() {
        let recent = Recent::default();
        let content = |byte: u8, length: usize| vec![byte; length];
        let find = |content: &[u8]| recent.find(content, |found: &u32| Some(*found));
        recent.keep(&content(1, LEAST), 1);
        recent.keep(&content(2, LEAST), 2);
        recent.keep(&content(3, LEAST - 1), 3);
        recent.keep(&content(4, MOST + 1), 4);
        assert_eq!((find(&content(1, LEAST)), find(&content(2, LEAST))), (Some(1), Some(2)));
        assert_eq!((find(&content(3, LEAST - 1)), find(&content(4, MOST + 1)), find(&content(1, LEAST + 1))), (None, None, None));
        assert_eq!(recent.find(&content(1, LEAST), |found| (*found == 2).then_some(())), None);
        assert_eq!(recent.ask(|found| *found == 2, <[u8]>::to_vec), Some(content(2, LEAST)));
        assert_eq!(recent.ask(|found| *found == 3, <[u8]>::to_vec), None);
        (6..).take(COUNT - 1).for_each(|byte| recent.keep(&content(byte, LEAST), byte.into()));
        assert_eq!((find(&content(2, LEAST)), find(&content(1, LEAST))), (Some(2), None));
        recent.keep(&content(5, MOST - LEAST), 5);
        // The one that was asked for last has room beside it.
        assert_eq!((find(&content(2, LEAST)), find(&content(1, LEAST)), find(&content(5, MOST - LEAST))), (Some(2), None, Some(5)));
    }
}
