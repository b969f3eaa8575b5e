//! Which entries are wanted by type, size and age.

use super::Facts;
use crate::envelope::{Fault, FaultCode};
use crate::tools::clock;
use crate::workspace::BaseDir;
use crate::workspace::dir::Kind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A type of entry, as a call names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Type {
    /// Regular files.
    #[serde(alias = "f", alias = "files")]
    File,
    /// Folders.
    #[serde(alias = "d", alias = "dir", alias = "directory", alias = "folders", alias = "directories")]
    Folder,
    /// Symbolic links.
    #[serde(alias = "l", alias = "symlink")]
    Link,
    /// FIFOs, sockets and devices.
    Other,
    /// Everything.
    #[serde(alias = "all", alias = "both")]
    Any,
}

/// A number of bytes: a number, or text such as `10k`, `1.5M`, `2GiB`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size(pub(super) u64);

impl Size {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches(['+', '=']).to_ascii_lowercase();
        let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let unit = match text[digits..].trim() {
            "" | "b" | "c" | "byte" | "bytes" => 1_u64,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return None,
        };
        if let Ok(whole) = text[..digits].parse::<u64>() {
            return whole.checked_mul(unit).map(Self);
        }
        let number: f64 = text[..digits].parse().ok()?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        // a fraction of a unit: rounding is what is asked for, and the cast saturates
        Some(Self((number * unit as f64).round() as u64))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(deserializer).map_err(|_| de::Error::custom("a size is a number of bytes or text such as 10k, 2M, 1G"))? {
            Form::Number(number) => Ok(Self(number)),
            Form::Text(text) => {
                Self::parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no size; sizes look like 512, 10k, 2M, 1G")))
            }
        }
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"] })
    }
}

/// What entries have to be.
#[derive(Debug)]
pub(super) struct Filter {
    kind: Type,
    size: Option<(u64, u64)>,
    newer: Option<(i64, i64)>,
}

impl Filter {
    /// From the arguments of a call.
    ///
    /// # Errors
    /// `invalid_arguments` when `newer_than` is no duration, no time and no path.
    pub(super) fn new(
        base: &BaseDir,
        kind: Option<Type>,
        min_size: Option<Size>,
        max_size: Option<Size>,
        newer_than: Option<&str>,
    ) -> Result<Self, Fault> {
        let size = (min_size.is_some() || max_size.is_some())
            .then(|| (min_size.map_or(0, |size| size.0), max_size.map_or(u64::MAX, |size| size.0)));
        let newer = newer_than.map(|text| moment(base, text)).transpose()?;
        Ok(Self { kind: kind.unwrap_or(Type::Any), size, newer })
    }

    /// Whether more than the kind has to be known.
    pub(super) fn needs_stat(&self) -> bool {
        self.size.is_some() || self.newer.is_some()
    }

    pub(super) fn accepts_kind(&self, kind: Kind) -> bool {
        // Only files have a size that means something.
        (self.size.is_none() || kind == Kind::File)
            && match self.kind {
                Type::Any => true,
                Type::File => kind == Kind::File,
                Type::Folder => kind == Kind::Folder,
                Type::Link => kind == Kind::Link,
                Type::Other => !matches!(kind, Kind::File | Kind::Folder | Kind::Link),
            }
    }

    pub(super) fn accepts(&self, kind: Kind, facts: Option<&Facts>) -> bool {
        self.accepts_kind(kind)
            && facts.is_none_or(|facts| {
                self.size.is_none_or(|(least, most)| (least..=most).contains(&facts.size))
                    && self.newer.is_none_or(|newer| facts.mtime > newer)
            })
    }
}

fn moment(base: &BaseDir, text: &str) -> Result<(i64, i64), Fault> {
    if let Some(seconds) = clock::duration(text.trim()) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
        return Ok((now.saturating_sub(seconds), 0));
    }
    // A moment is included, as people mean it by "since".
    if let Some(seconds) = clock::parse(text.trim()).or_else(|| text.trim().parse().ok()) {
        return Ok((seconds.saturating_sub(1), 999_999_999));
    }
    match base.rel(text).and_then(|path| base.stat(&path)) {
        Ok(meta) => Ok((meta.mtime(), meta.mtime_nsec())),
        Err(_) => Err(Fault::new(FaultCode::InvalidArguments, format!("newer_than {text:?} is no duration, no time and no file"))
            .hint("for example \"2h\", \"3d\", \"2024-01-31\", \"2024-01-31T12:00:00Z\" or the path of a file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        for (text, bytes) in [("0", 0), ("512", 512), ("10k", 10_240), ("1.5M", 1_572_864), ("2 GiB", 2 << 30), ("+3kb", 3072)] {
            assert_eq!(Size::parse(text), Some(Size(bytes)), "{text}");
        }
        for text in ["", "x", "k", "1x", "-1", "1..2k"] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
        assert_eq!(serde_json::from_str::<Size>("7").unwrap(), Size(7));
        assert!(serde_json::from_str::<Size>("\"7q\"").unwrap_err().to_string().contains("10k"));
    }
}
