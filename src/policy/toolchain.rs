//! The toolchains that live in a home folder: where each is, which of its parts are programs, and which are caches. A table.
//!
//! Never grants a home folder, and never a part of a toolchain that is not named here: credentials and settings lie beside the
//! programs (`~/.cargo/credentials.toml`, `~/.npmrc`, `~/.gradle/gradle.properties`).

use super::Rights;

/// One toolchain.
#[derive(Debug)]
pub struct Toolchain {
    /// The language, as images name it.
    pub language: &'static str,
    /// The program that manages it.
    pub name: &'static str,
    /// The variable that says where it is, if there is one; commands get it with the same value.
    pub var: Option<&'static str>,
    /// Where it is in the home folder when the variable is not set; the first that exists.
    pub home: &'static [&'static str],
    /// What is granted of it.
    pub parts: &'static [(&'static str, Rights)],
    /// Folders of programs, for images that do not take the host's PATH.
    pub bins: &'static [&'static str],
    /// Whether commands get the variable: not where they have a private folder in its place.
    pub keep_var: bool,
}

const RUN: Rights = Rights::RUN;
const READ: Rights = Rights::READ;

macro_rules! row {
    ($language:literal, $name:literal, $var:expr, [$($home:literal),*], [$($part:literal: $rights:ident),*], [$($bin:literal),*], $keep:literal) => {
        Toolchain {
            language: $language,
            name: $name,
            var: $var,
            home: &[$($home),*],
            parts: &[$(($part, $rights)),*],
            bins: &[$($bin),*],
            keep_var: $keep,
        }
    };
}

/// Every toolchain that is looked for.
#[rustfmt::skip]
pub static TOOLCHAINS: &[Toolchain] = &[
    row!("rust", "rustup", Some("RUSTUP_HOME"), [".rustup"], ["toolchains": RUN, "settings.toml": READ], [], true),
    row!("rust", "cargo", Some("CARGO_HOME"), [".cargo"], ["bin": RUN, "registry/cache": READ, "registry/index": READ, "git/db": READ], ["bin"], false),
    row!("python", "pyenv", Some("PYENV_ROOT"), [".pyenv"],
        ["bin": RUN, "libexec": RUN, "shims": RUN, "versions": RUN, "plugins": RUN, "pyenv.d": RUN, "completions": READ, "version": READ], ["shims", "bin"], true),
    row!("python", "uv", None, [".local/share/uv"], ["python": RUN, "tools": RUN], [], false),
    row!("python", "pipx", Some("PIPX_HOME"), [".local/share/pipx", ".local/pipx"], ["venvs": RUN, "shared": RUN], [], false),
    row!("python", "conda", None, ["miniconda3", "anaconda3", "miniforge3", "mambaforge"],
        ["bin": RUN, "condabin": RUN, "lib": RUN, "libexec": RUN, "envs": RUN, "include": READ, "share": READ, "ssl": READ, "shell": READ, "conda-meta": READ], ["bin"], false),
    row!("node", "nvm", Some("NVM_DIR"), [".nvm", ".config/nvm"], ["versions": RUN, "alias": READ, "nvm.sh": READ, "nvm-exec": RUN], [], true),
    row!("node", "fnm", Some("FNM_DIR"), [".local/share/fnm", ".fnm"], ["node-versions": RUN, "aliases": RUN], [], true),
    row!("node", "volta", Some("VOLTA_HOME"), [".volta"], ["bin": RUN, "tools": RUN], ["bin"], true),
    row!("node", "pnpm", Some("PNPM_HOME"), [".local/share/pnpm"], ["pnpm": RUN, "global": RUN, "nodejs": RUN, ".tools": RUN], [], false),
    row!("node", "npm", Some("npm_config_cache"), [".npm"], ["_cacache/content-v2": READ], [], false),
    row!("node", "bun", Some("BUN_INSTALL"), [".bun"], ["bin": RUN, "install/global": RUN], ["bin"], false),
    row!("node", "deno", None, [".deno"], ["bin": RUN], ["bin"], false),
    row!("go", "go", Some("GOROOT"), [".local/go"], ["bin": RUN, "pkg": RUN, "lib": READ, "src": READ, "api": READ, "misc": READ, "go.env": READ, "VERSION": READ], ["bin"], true),
    row!("go", "go modules", Some("GOPATH"), ["go"], ["bin": RUN, "pkg/mod": RUN], ["bin"], false),
    row!("ruby", "rbenv", Some("RBENV_ROOT"), [".rbenv"], ["bin": RUN, "libexec": RUN, "shims": RUN, "versions": RUN, "plugins": RUN, "version": READ], ["shims", "bin"], true),
    row!("java", "jdk", Some("JAVA_HOME"), [], ["bin": RUN, "lib": RUN, "jre": RUN, "conf": READ, "include": READ, "jmods": READ, "release": READ], ["bin"], true),
    row!("java", "sdkman", Some("SDKMAN_DIR"), [".sdkman"], ["candidates": RUN], [], true),
    row!("java", "gradle", None, [".gradle"], ["wrapper/dists": RUN, "caches/modules-2": READ], [], false),
    row!("java", "maven", None, [".m2"], ["repository": READ, "wrapper/dists": RUN], [], false),
    row!("dotnet", "dotnet", Some("DOTNET_ROOT"), [".dotnet"], ["dotnet": RUN, "sdk": RUN, "shared": RUN, "host": RUN, "packs": RUN], [], true),
    row!("haskell", "ghcup", None, [".ghcup"], ["bin": RUN, "ghc": RUN], ["bin"], false),
    row!("lean", "elan", Some("ELAN_HOME"), [".elan"], ["bin": RUN, "toolchains": RUN, "settings.toml": READ], ["bin"], true),
    row!("any", "mise", Some("MISE_DATA_DIR"), [".local/share/mise"], ["installs": RUN, "shims": RUN, "plugins": RUN], ["shims"], true),
    row!("any", "asdf", Some("ASDF_DATA_DIR"), [".asdf"], ["installs": RUN, "shims": RUN, "plugins": RUN, "bin": RUN, "lib": RUN, "libexec": RUN], ["shims"], true),
];

/// The toolchains that an image asks for: languages, or `*`. Managers of any language come with each.
pub fn asked(languages: &[String]) -> impl Iterator<Item = &'static Toolchain> {
    TOOLCHAINS
        .iter()
        .filter(|toolchain| languages.iter().any(|asked| asked == "*" || asked == toolchain.language || toolchain.language == "any"))
}

/// Whether an image can ask for this.
pub fn known(language: &str) -> bool {
    language == "*" || TOOLCHAINS.iter().any(|toolchain| toolchain.language == language)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_is_a_whole_toolchain_or_a_credential() {
        for toolchain in TOOLCHAINS {
            for (part, rights) in toolchain.parts {
                assert!(!part.is_empty() && !part.starts_with('/') && !part.contains(".."), "{part}");
                assert!(!rights.write && !rights.device, "{} {part}", toolchain.name);
                assert!(!part.contains("credentials") && !part.ends_with("npmrc"), "{part}");
            }
            assert!(toolchain.home.iter().all(|home| !home.is_empty()), "{}", toolchain.name);
        }
    }

    #[test]
    fn images_ask_by_language() {
        let names = |asked_for: &[&str]| {
            let languages: Vec<_> = asked_for.iter().map(|s| (*s).to_owned()).collect();
            asked(&languages).map(|toolchain| toolchain.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["rust"]), ["rustup", "cargo", "mise", "asdf"]);
        assert_eq!(names(&["*"]).len(), TOOLCHAINS.len());
        assert!(names(&[]).is_empty());
        assert!(known("python") && !known("pyton"));
    }
}
