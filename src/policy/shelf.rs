//! The policies and images that come with the program, by name. A file named on the command line takes their place.

use super::file::Policy;
use super::image::Image;
use crate::envelope::{Fault, FaultCode};
use std::io::Read;
use std::path::Path;

/// The policy that is used when none is named.
pub const DEFAULT_POLICY: &str = "build";
/// The image that is used when a policy names none.
pub const DEFAULT_IMAGE: &str = "host";

/// The policies, in the order in which they are listed: each permits more than the one before it, or the same more strictly.
pub static POLICIES: &[(&str, &str)] = &[
    ("observe", include_str!("../../policies/observe.toml")),
    ("edit", include_str!("../../policies/edit.toml")),
    ("build", include_str!("../../policies/build.toml")),
    ("ci", include_str!("../../policies/ci.toml")),
    ("fork-pr", include_str!("../../policies/fork-pr.toml")),
];

/// The images.
pub static IMAGES: &[(&str, &str)] = &[
    ("host", include_str!("../../images/host.toml")),
    ("minimal", include_str!("../../images/minimal.toml")),
    ("rust", include_str!("../../images/rust.toml")),
    ("python", include_str!("../../images/python.toml")),
    ("node", include_str!("../../images/node.toml")),
];

/// Longer than any policy a person writes, in bytes.
const LONGEST: u64 = 1 << 20;
/// How many policies or images may lie over each other.
const DEEPEST: usize = 8;

/// A policy by its name on the shelf or the path of a file, with everything that it extends.
///
/// # Errors
/// `invalid_policy`.
pub fn policy(name: &str) -> Result<Policy, Fault> {
    layers(name, "policy", POLICIES, Policy::parse, |policy| policy.extends.as_deref(), Policy::over)
}

/// A policy as it is written, by its name on the shelf or the path of a file.
///
/// # Errors
/// `invalid_policy`.
pub fn policy_text(name: &str) -> Result<String, Fault> {
    text(name, "policy", POLICIES)
}

/// An image by its name on the shelf or the path of a file, with everything that it extends.
///
/// # Errors
/// `invalid_policy`.
pub fn image(name: &str) -> Result<Image, Fault> {
    layers(name, "image", IMAGES, Image::parse, |image| image.extends.as_deref(), Image::over)
}

fn layers<T>(
    name: &str,
    what: &str,
    shelf: &[(&str, &str)],
    parse: fn(&str, &str) -> Result<T, Fault>,
    extends: fn(&T) -> Option<&str>,
    over: fn(T, T) -> T,
) -> Result<T, Fault> {
    let mut stack = vec![parse(&text(name, what, shelf)?, name)?];
    while let Some(below) = stack.last().and_then(|top| extends(top)).map(str::to_owned) {
        if stack.len() >= DEEPEST {
            return Err(Fault::new(FaultCode::InvalidPolicy, format!("{name} extends more than {DEEPEST} others, or itself"))
                .hint("`extends` names one of the shelf, and that one in turn another: break the circle"));
        }
        // Only the shelf: a file that pulls in other files by path is not what the person has read.
        let Some((_, text)) = shelf.iter().find(|(known, _)| *known == below) else {
            return Err(unknown(&below, what, shelf).hint("`extends` names one of these").with("extended_by", name));
        };
        stack.push(parse(text, &below)?);
    }
    let lowest = stack.pop().ok_or_else(|| Fault::new(FaultCode::Internal, "no layer"))?;
    Ok(stack.into_iter().rev().fold(lowest, |below, above| over(above, below)))
}

/// The text of one: of the shelf, or of a file when the name has a `/` or ends in `.toml`.
fn text(name: &str, what: &str, shelf: &[(&str, &str)]) -> Result<String, Fault> {
    if let Some((_, text)) = shelf.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_owned());
    }
    if !name.contains('/') && !name.ends_with(".toml") {
        let hint = match name {
            "" => format!("name one, or the path of a {what} file"),
            _ if Path::new(name).is_dir() => format!("this is a folder; name a {what} file, with a slash or `.toml`"),
            _ if Path::new(name).is_file() => format!("for the file of this name write ./{name}"),
            _ => format!("for a file write its path with a slash or `.toml`: ./{name}.toml"),
        };
        return Err(unknown(name, what, shelf).hint(hint));
    }
    read(Path::new(name))
}

/// Reads a policy or image file, bounded.
///
/// # Errors
/// `invalid_policy`.
pub fn read(path: &Path) -> Result<String, Fault> {
    let wrong = |says: String| Fault::new(FaultCode::InvalidPolicy, format!("{}: {says}", path.display()));
    let meta = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !meta.is_file() {
        return Err(wrong("not a file".into()));
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    match text.len() as u64 > LONGEST {
        true => Err(wrong(format!("longer than {LONGEST} bytes"))),
        false => Ok(text),
    }
}

fn unknown(name: &str, what: &str, shelf: &[(&str, &str)]) -> Fault {
    let known: Vec<_> = shelf.iter().map(|(known, _)| *known).collect();
    Fault::new(FaultCode::InvalidPolicy, format!("no {what} is called {name:?}; there are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_on_the_shelf_under_its_own_name() {
        for (folder, shelf) in [("policies", POLICIES), ("images", IMAGES)] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            let mut files: Vec<_> = std::fs::read_dir(&folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            files.sort();
            let mut known: Vec<_> = shelf.iter().map(|(name, _)| (*name).to_owned()).collect();
            known.sort();
            assert_eq!(files, known, "{}", folder.display());
        }
        for (name, _) in POLICIES {
            let policy = policy(name).unwrap();
            assert_eq!(policy.name.as_deref(), Some(*name));
            assert!(policy.description.is_some());
            image(policy.image.as_deref().unwrap()).unwrap();
        }
        for (name, _) in IMAGES {
            assert_eq!(image(name).unwrap().name.as_deref(), Some(*name));
        }
    }

    #[test]
    fn every_allowance_has_a_reason() {
        for (name, _) in POLICIES {
            let policy = policy(name).unwrap();
            for row in policy.fs.read.iter().chain(&policy.fs.write).chain(&policy.fs.exec).chain(&policy.fs.protect) {
                assert!(row.reason.is_some(), "{name}: {}", row.path);
            }
        }
    }

    #[test]
    fn a_file_extends_the_shelf_and_a_circle_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        std::fs::write(&path, "name = \"mine\"\nextends = \"build\"\nnet = \"none\"").unwrap();
        let mine = policy(path.to_str().unwrap()).unwrap();
        assert_eq!(mine.net, Some(super::super::Net::None));
        assert_eq!(mine.fs.write.len(), 1);

        std::fs::write(&path, "extends = \"mine\"").unwrap();
        assert!(policy(path.to_str().unwrap()).unwrap_err().message().contains("no policy is called \"mine\""));
        assert!(policy("nonsense").unwrap_err().message().contains("observe, edit, build"));
        assert!(policy("./absent.toml").is_err());
        assert!(policy("/dev/zero").unwrap_err().message().contains("not a file"));

        let circle: &[(&str, &str)] = &[("a", "extends = \"b\""), ("b", "extends = \"a\"")];
        let fault = layers("a", "policy", circle, Policy::parse, |policy| policy.extends.as_deref(), Policy::over).unwrap_err();
        assert!(fault.message().contains("or itself"));
    }
}
