//! The content hash by which a file is recognised.

use super::recent::Recent;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A content hash: SHA-256 of the bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

thread_local! {
    static RECENT: Recent<Hash> = const { Recent::new() };
}

impl Hash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The same for the content of a file, which may come again: an edit of what an edit wrote.
    pub fn of_content(bytes: &[u8]) -> Self {
        RECENT.with(|recent| {
            recent.find(bytes, |hash| Some(*hash)).unwrap_or_else(|| {
                let hash = Self::of(bytes);
                recent.keep(bytes, hash);
                hash
            })
        })
    }

    /// Asks the content with this hash, if it was one of the last to be given to [`Hash::of_content`].
    pub fn ask_content<T>(&self, question: impl FnOnce(&[u8]) -> T) -> Option<T> {
        RECENT.with(|recent| recent.ask(|hash| hash == self, question))
    }

    /// The hash of all that a reader gives, in constant memory.
    ///
    /// # Errors
    /// The reader's own.
    pub fn of_reader(mut reader: impl std::io::Read) -> std::io::Result<Self> {
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(Self::from_digest(digest)),
                Ok(read) => digest.update(&buffer[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// From a running digest.
    pub fn from_digest(digest: Sha256) -> Self {
        Self(digest.finalize().into())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // Each answer about a file says one.
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        f.write_str("sha256:")?;
        f.write_str(std::str::from_utf8(&hex).map_err(|_| std::fmt::Error)?)
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for Hash {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        if hex.len() != 64 || !hex.iter().all(u8::is_ascii_hexdigit) {
            return Err(());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| ())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|()| serde::de::Error::custom("not a sha256 hash"))
    }
}
