//! Times as text and back, always in UTC: results must not depend on a time zone.

/// Seconds since the epoch as `2024-01-31T23:59:59Z`.
pub(crate) fn show(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400);
    let rest = seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Reads `2024-01-31`, `2024-01-31T23:59:59Z`, the same with a space or an offset such as `+02:00`, as seconds since the epoch.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let mut number = |digits: usize| -> Option<i64> { fixed(parts.next()?, digits) };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let midnight = days(year, month, day) * 86_400;
    let Some(time) = time else { return Some(midnight) };
    let (time, offset) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => (&time[..at], &time[at..]),
        None => (time, "Z"),
    };
    let time = time.split('.').next()?;
    let mut parts = time.split(':');
    let hour = fixed(parts.next()?, 2)?;
    let minute = fixed(parts.next()?, 2)?;
    let second = parts.next().map_or(Some(0), |second| fixed(second, 2))?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let offset = match offset.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign, rest) => {
            let (hours, minutes) = rest.split_once(':').or_else(|| rest.split_at_checked(2))?;
            let seconds = fixed(hours, 2)? * 3600 + if minutes.is_empty() { 0 } else { fixed(minutes, 2)? * 60 };
            if sign == "+" { seconds } else { -seconds }
        }
    };
    Some(midnight + hour * 3600 + minute * 60 + second - offset)
}

/// A duration such as `90s`, `15m`, `2h`, `3d`, `1w`, in seconds.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: i64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim() {
        "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 604_800,
        _ => return None,
    };
    number.checked_mul(unit)
}

fn fixed(text: &str, digits: usize) -> Option<i64> {
    if text.len() != digits || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The date of a day since the epoch, in the proleptic Gregorian calendar. Years are counted from March, so that the day that
/// leap years add is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        assert_eq!(show(0), "1970-01-01T00:00:00Z");
        assert_eq!(show(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(show(-1), "1969-12-31T23:59:59Z");
        for seconds in (-3_000_000_000_i64..5_000_000_000).step_by(123_456_789) {
            assert_eq!(parse(&show(seconds)), Some(seconds));
        }
        assert_eq!(parse("2000-02-29"), Some(951_782_400));
        assert_eq!(parse("2000-02-29 12:34"), Some(951_827_640));
        assert_eq!(parse("2000-02-29T14:34:56.5+02:00"), Some(951_827_696));
        for wrong in ["", "2000", "2000-13-01", "2000-1-1", "x", "2000-01-01T25:00:00Z"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!((duration("2h"), duration("3 days"), duration("1"), duration("h")), (Some(7200), Some(259_200), None, None));
    }
}
