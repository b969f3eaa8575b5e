//! The git settings of commands: the person's name and address, and nothing else of the person's settings.
//!
//! Never follows an include, and never takes over a key that names a program, a helper or a key.

use super::surroundings::Surroundings;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longer than the settings of any person, in bytes.
const LONGEST: u64 = 1 << 18;

/// The text of the private settings file.
pub(super) fn private(here: &Surroundings, base: &Path) -> String {
    let (mut name, mut email) = (None, None);
    // Lowest first, as git reads them.
    let xdg = here.folder("XDG_CONFIG_HOME").or_else(|| here.in_home(".config")).map(|config| config.join("git/config"));
    let told = here.folder("GIT_CONFIG_GLOBAL");
    let files = match told {
        Some(file) => vec![file],
        None => [xdg, here.in_home(".gitconfig")].into_iter().flatten().collect(),
    };
    for file in files {
        let mut text = String::new();
        let Ok(opened) = File::open(&file) else { continue };
        if opened.take(LONGEST).read_to_string(&mut text).is_err() {
            continue;
        }
        let (this_name, this_email) = user(&text);
        name = this_name.or(name);
        email = this_email.or(email);
    }
    let mut text = String::from("# Made for this session.\n");
    if name.is_some() || email.is_some() {
        text.push_str("[user]\n");
    }
    for (key, value) in [("name", name), ("email", email)] {
        if let Some(value) = value {
            text.push_str(&format!("\t{key} = {}\n", quoted(&value)));
        }
    }
    // What the repository's settings name is run in the sandbox; who owns the files says nothing there.
    if let Some(base) = base.to_str() {
        text.push_str(&format!("[safe]\n\tdirectory = {}\n\tdirectory = {}\n", quoted(base), quoted(&format!("{base}/*"))));
    }
    text.push_str("[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[advice]\n\tdetachedHead = false\n");
    text
}

/// `user.name` and `user.email` of a settings file; the last of each counts.
fn user(text: &str) -> (Option<String>, Option<String>) {
    let (mut name, mut email) = (None, None);
    let mut in_user = false;
    for line in text.lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let Some((section, rest)) = rest.split_once(']') else { continue };
            in_user = section.trim().eq_ignore_ascii_case("user");
            line = rest.trim();
        }
        let Some((key, value)) = line.split_once('=').filter(|_| in_user) else { continue };
        let slot = match key.trim().to_ascii_lowercase().as_str() {
            "name" => &mut name,
            "email" => &mut email,
            _ => continue,
        };
        *slot = Some(unquoted(value.trim())).filter(|value| !value.is_empty()).or(slot.take());
    }
    (name, email)
}

/// A value as git reads it: quotes, escapes, comments. Control characters are left out.
fn unquoted(value: &str) -> String {
    // Blanks count between quotes, and before something that follows: `kept` is how much of `out` does.
    let (mut out, mut quoted, mut kept) = (String::new(), false, 0);
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => {
                // Other escapes are line breaks and the like, which no name has.
                if let Some(c @ ('"' | '\\')) = chars.next() {
                    out.push(c);
                }
            }
            '#' | ';' if !quoted => break,
            c if c.is_control() => {}
            c => out.push(c),
        }
        if quoted || !c.is_whitespace() {
            kept = out.len();
        }
    }
    out.truncate(kept);
    out
}

fn quoted(value: &str) -> String {
    let inner: String = value
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            '\n' => vec!['\\', 'n'],
            c => vec![c],
        })
        .collect();
    format!("\"{inner}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn name_and_address_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let text = "[credential]\n\thelper = store\n[user]\n\tname = \"A \\\"B\\\" C\" # who\n\temail=a@b.example ; x\n\tsigningkey = K\n[alias]\n\tx = !touch pwn\n[include]\n\tpath = y\n[user \"sub\"]\n\tname = wrong\n[core]\n\tsshCommand = z\n";
        std::fs::write(home.path().join(".gitconfig"), text).unwrap();
        let mut here = Surroundings::new(Vec::new(), 1000, 1000);
        here.home = Some(home.path().to_path_buf());
        let made = private(&here, Path::new("/w \"x"));
        assert!(made.contains("name = \"A \\\"B\\\" C\"\n") && made.contains("email = \"a@b.example\"\n"), "{made}");
        assert!(made.contains("directory = \"/w \\\"x\"\n"));
        for word in ["helper", "store", "signingkey", "alias", "include", "sshCommand", "wrong", "pwn"] {
            assert!(!made.contains(word), "{word}");
        }
    }

    #[test]
    fn nobody_is_nobody() {
        let made = private(&Surroundings::new(Vec::new(), 0, 0), Path::new("/w"));
        assert!(!made.contains("[user]"));
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn what_is_quoted_reads_back(value in "[^\\p{Cc}]{0,40}") {
            prop_assert_eq!(unquoted(&quoted(&value)), value);
        }

        #[test]
        fn a_hostile_file_adds_no_line(text in "\\PC{0,60}") {
            let (name, email) = user(&format!("[user]\nname = {text}\nemail = {text}"));
            for value in [name, email].into_iter().flatten() {
                prop_assert_eq!(quoted(&value).lines().count(), 1);
            }
        }
    }
}
