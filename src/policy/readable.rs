//! What of a folder everybody may read, judged by mode and never by name.
//!
//! Landlock only adds rights: a folder that holds one secret cannot be granted whole. A jail that stays uid 0 passes the kernel's
//! own check of modes when it owns the file, so the modes are judged here. Never follows a link, and never grants what it has not seen.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much of a folder is looked at, at most. `/etc` of a large server has some 5,000 entries.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Directory entries.
    pub entries: usize,
    /// Wall time.
    pub time: Duration,
}

impl Default for Bound {
    fn default() -> Self {
        // 1.5 ms for 1,200 entries when cached. The time is generous: a busy machine would else have other grants in each session.
        Self { entries: 20_000, time: Duration::from_millis(500) }
    }
}

/// What was found.
#[derive(Debug, Default, PartialEq)]
pub struct Readable {
    /// Files, and folders in which everything may be read by everybody. Never one beneath another.
    pub granted: Vec<PathBuf>,
    /// What is kept out: not for everybody, or neither file nor folder.
    pub withheld: Vec<PathBuf>,
    /// Folders that were not looked at to the end, and so are kept out.
    pub unseen: Vec<PathBuf>,
}

/// What everybody may read beneath a folder.
pub fn readable(top: &Path, bound: Bound) -> Readable {
    let mut walk = Walk { found: Readable::default(), left: bound.entries, until: Instant::now() + bound.time };
    match fs::symlink_metadata(top) {
        Ok(meta) if meta.is_dir() && open_to_all(meta.mode()) => {
            if walk.folder(top, 0) {
                walk.found.granted = vec![top.to_path_buf()];
            }
        }
        Ok(meta) if meta.is_file() && meta.mode() & 0o004 != 0 => walk.found.granted.push(top.to_path_buf()),
        _ => walk.found.withheld.push(top.to_path_buf()),
    }
    walk.found
}

/// Whether everybody may list and enter a folder.
fn open_to_all(mode: u32) -> bool {
    mode & 0o005 == 0o005
}

/// Deeper than any settings folder; bounds the recursion.
const DEEPEST: usize = 40;

struct Walk {
    found: Readable,
    left: usize,
    until: Instant,
}

impl Walk {
    /// Looks at what is in a folder. True: all of it may be read, and nothing was added to `granted`; the caller grants the folder.
    fn folder(&mut self, folder: &Path, depth: usize) -> bool {
        let Ok(entries) = fs::read_dir(folder) else {
            self.found.withheld.push(folder.to_path_buf());
            return false;
        };
        let before = self.found.granted.len();
        let mut whole = true;
        for entry in entries {
            if self.left == 0 || depth > DEEPEST || (self.left.is_multiple_of(64) && Instant::now() > self.until) {
                self.left = 0;
                self.found.unseen.push(folder.to_path_buf());
                return false;
            }
            self.left -= 1;
            let Ok(entry) = entry else {
                whole = false;
                continue;
            };
            // A link is judged where it leads, by the kernel, when it is followed: the target needs a grant of its own.
            let Ok(kind) = entry.file_type() else {
                whole = false;
                continue;
            };
            if kind.is_symlink() {
                continue;
            }
            let path = entry.path();
            let mode = entry.metadata().map(|meta| meta.mode()).unwrap_or(0);
            let open = match (kind.is_dir(), kind.is_file()) {
                (true, _) if open_to_all(mode) => match self.folder(&path, depth + 1) {
                    true => true,
                    false => {
                        // Its readable parts are in `granted` already.
                        whole = false;
                        continue;
                    }
                },
                (_, true) => mode & 0o004 != 0,
                _ => false,
            };
            match open {
                true => self.found.granted.push(path),
                false => {
                    whole = false;
                    self.found.withheld.push(path);
                }
            }
        }
        if whole {
            self.found.granted.truncate(before);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn put(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn folder(path: &Path, mode: u32) {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A tree like `/etc`: secrets beside what everybody reads.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let etc = dir.path().join("etc");
        for (file, mode) in [
            ("passwd", 0o644),
            ("shadow", 0o640),
            ("ssl/openssl.cnf", 0o644),
            ("ssl/private/key", 0o644),
            ("ssh/ssh_config", 0o644),
            ("ssh/host_key", 0o600),
            ("all/a", 0o644),
            ("all/b/c", 0o644),
        ] {
            put(&etc.join(file), mode);
        }
        for open in ["", "ssl", "ssh", "all", "all/b"] {
            folder(&etc.join(open), 0o755);
        }
        folder(&etc.join("ssl/private"), 0o710);
        symlink("/etc/shadow", etc.join("all/link")).unwrap();
        dir
    }

    fn names(paths: &[PathBuf], top: &Path) -> Vec<String> {
        let mut names: Vec<_> = paths.iter().map(|path| path.strip_prefix(top).unwrap().display().to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_everybody_may_read_comes_in() {
        let dir = tree();
        let etc = dir.path().join("etc");
        let found = readable(&etc, Bound::default());
        assert_eq!(names(&found.granted, &etc), ["all", "passwd", "ssh/ssh_config", "ssl/openssl.cnf"]);
        assert_eq!(names(&found.withheld, &etc), ["shadow", "ssh/host_key", "ssl/private"]);
        assert_eq!(found.unseen, Vec::<PathBuf>::new());
    }

    #[test]
    fn a_folder_without_secrets_is_one_grant() {
        let dir = tree();
        let all = dir.path().join("etc/all");
        assert_eq!(readable(&all, Bound::default()).granted, [all]);
    }

    #[test]
    fn what_is_beyond_the_bound_is_kept_out() {
        let dir = tempfile::tempdir().unwrap();
        folder(dir.path(), 0o755);
        for i in 0..50 {
            put(&dir.path().join(format!("f{i}")), 0o644);
        }
        let found = readable(dir.path(), Bound { entries: 10, time: Duration::from_secs(10) });
        assert!(found.granted.len() <= 10 && !found.granted.contains(&dir.path().to_path_buf()));
        assert_eq!(found.unseen, [dir.path()]);
        let closed = readable(&dir.path().join("absent"), Bound::default());
        assert!(closed.granted.is_empty());
    }

    #[test]
    fn a_fifo_makes_a_folder_partial() {
        let dir = tempfile::tempdir().unwrap();
        folder(dir.path(), 0o755);
        put(&dir.path().join("file"), 0o644);
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        assert_eq!(readable(dir.path(), Bound::default()).granted, [dir.path().join("file")]);
    }
}
