//! Numbers as a person types them, with words for what is none. The parser's own words are a compiler's.

/// Reads a whole number from `least` to `most`.
pub(super) fn whole<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.trim().parse().ok().filter(|number| (least..=most).contains(number)).and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| match most {
            most if most >= u64::from(u32::MAX) => format!("a whole number is wanted, {least} or more"),
            most => format!("a whole number from {least} to {most} is wanted"),
        })
    }
}

/// Reads a sum of US dollars.
pub(super) fn dollars(text: &str) -> Result<f64, String> {
    let sum = text.trim().trim_start_matches('$').parse::<f64>().ok().filter(|sum| (0.0..=1e12).contains(sum));
    sum.ok_or_else(|| "a sum of US dollars is wanted, for example 2.50".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_what_is_none_is_said_in_words() {
        assert_eq!((whole::<u32>(1, u64::from(u32::MAX))("7"), dollars("$2.50")), (Ok(7), Ok(2.5)));
        for text in ["0", "-1", "abc", "", "4294967296"] {
            assert_eq!(whole::<u32>(1, u64::from(u32::MAX))(text), Err("a whole number is wanted, 1 or more".into()));
        }
        assert_eq!(whole::<u64>(1, 3600)("3601"), Err("a whole number from 1 to 3600 is wanted".into()));
        for text in ["abc", "-1", "NaN", "inf", ""] {
            assert!(dollars(text).unwrap_err().contains("2.50"), "{text}");
        }
    }
}
