//! Numbers as people write them: `512MiB`, `2m`. Never guesses a unit: a time without one is an error.

use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;

/// A number of bytes: `0`, `4096`, `"64KiB"`, `"512MiB"`, `"2GiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A span of time in milliseconds: `"500ms"`, `"30s"`, `"2m"`, `"1h"`, and `0` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

const SIZES: &[(&str, u64)] = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
const TIMES: &[(&str, u64)] = &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

impl Bytes {
    /// Reads a size.
    ///
    /// # Errors
    /// A sentence that names the units.
    pub fn parse(text: &str) -> Result<Self, String> {
        scaled(text, SIZES).map(Self).ok_or_else(|| format!("{text:?} is no size: write a whole number and B, KiB, MiB, GiB or TiB"))
    }
}

impl Millis {
    /// Reads a span of time.
    ///
    /// # Errors
    /// A sentence that names the units.
    pub fn parse(text: &str) -> Result<Self, String> {
        scaled(text, TIMES).map(Self).ok_or_else(|| format!("{text:?} is no time: write a whole number and ms, s, m or h"))
    }
}

/// A whole number and one of the units; `0` needs none.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

macro_rules! human {
    ($type:ident, $expecting:literal, $number:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        $type::parse(text).map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$type, E> {
                        $number(number).map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        u64::try_from(number)
                            .map_err(|_| E::custom(format!("{number} is negative")))
                            .and_then(|number| self.visit_u64(number))
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

human!(Bytes, "a size such as \"512MiB\", or a number of bytes", |number| Ok::<_, String>(Bytes(number)));
human!(Millis, "a time such as \"2m\"", |number: u64| match number {
    0 => Ok(Millis(0)),
    number => Err(format!("{number} has no unit: write \"{number}ms\", \"{number}s\", \"{number}m\" or \"{number}h\"")),
});

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.0, SIZES, f)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.0, TIMES, f)
    }
}

/// In the largest unit that divides it.
fn shown(value: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match units.iter().rev().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", value / factor),
        None => write!(f, "{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_units_and_refuses_the_rest() {
        assert_eq!(Bytes::parse("512MiB"), Ok(Bytes(512 << 20)));
        assert_eq!(Bytes::parse("2 GiB"), Ok(Bytes(2 << 30)));
        assert_eq!(Millis::parse("2m"), Ok(Millis(120_000)));
        for wrong in ["", "512", "MiB", "-1KiB", "1.5GiB", "512mib", "99999999999TiB", "1 GiB "] {
            assert!(Bytes::parse(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", "5", "s", "5 minutes", "1m30s"] {
            assert!(Millis::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn what_is_shown_reads_back(bytes in 0u64..u64::MAX, millis in 0u64..u64::MAX) {
            prop_assert_eq!(Bytes::parse(&Bytes(bytes).to_string()), Ok(Bytes(bytes)));
            prop_assert_eq!(Millis::parse(&Millis(millis).to_string()), Ok(Millis(millis)));
        }
    }
}
