use super::super::resolve::tests::Machine;
use super::*;
use std::os::unix::fs::MetadataExt;

#[test]
fn the_folder_is_private_and_seeded_by_links() {
    let machine = Machine::new();
    let resolved = machine.resolve("build").unwrap();
    let held = furnish(&resolved, &machine.here).unwrap();
    let session = &resolved.charter.session_dir;
    for name in ["", "home", "tmp", "cache", "spool", "own"] {
        let meta = fs::metadata(session.join(name)).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.is_dir()), (0o700, true), "{name}");
    }
    let cache = session.join("cache/cargo/registry/cache");
    assert_eq!(fs::read_link(&cache).unwrap(), machine.here.root.join("home/p/.cargo/registry/cache"));
    assert!(cache.join("i/c.crate").exists() && !session.join("cache/cargo/credentials.toml").exists());
    // `registry/src` is the session's own: cargo unpacks into it.
    assert!(session.join("cache/cargo/registry").symlink_metadata().unwrap().is_dir());
    let git = fs::read_to_string(session.join("home/.gitconfig")).unwrap();
    assert!(git.contains("Person") && !git.contains("helper"));

    // A second session under the same name does not start.
    assert_eq!(furnish(&resolved, &machine.here).unwrap_err().code(), FaultCode::IoError);
    assert!(session.join("home/.gitconfig").exists());
    fs::write(session.join("tmp/left"), "").unwrap();
    drop(held);
    assert!(!session.exists() && machine.here.root.join("home/p/.cargo/registry/cache/i/c.crate").exists());
}

#[test]
fn a_folder_that_is_as_it_was_made_serves_the_next_session() {
    let machine = Machine::new();
    let first = machine.resolve("build").unwrap();
    drop(furnish(&first, &machine.here).unwrap());
    let made = fs::metadata(&first.charter.session_dir).unwrap().ino();
    fs::write(first.charter.session_dir.join("home/.gitconfig"), "[core]\n\tpager = evil\n").unwrap();
    let second = machine.resolve("build").unwrap();
    let held = furnish(&second, &machine.here).unwrap();
    let folder = &second.charter.session_dir;
    assert!(!first.charter.session_dir.exists() && fs::metadata(folder).unwrap().ino() == made);
    assert!(!fs::read_to_string(folder.join("home/.gitconfig")).unwrap().contains("evil"));
    // A third beside it gets its own.
    let third = machine.resolve("build").unwrap();
    let beside = furnish(&third, &machine.here).unwrap();
    assert!(folder.exists() && third.charter.session_dir.exists());
    drop((held, beside));
}

#[test]
fn what_a_command_left_goes_with_the_session() {
    let machine = Machine::new();
    let leave: &[fn(&Path)] = &[
        |session| fs::write(session.join("home/.bashrc"), "evil").unwrap(),
        |session| fs::create_dir(session.join("cache/x")).unwrap(),
        |session| fs::write(session.join("spool/1.log"), "").unwrap(),
        |session| fs::set_permissions(session.join("home"), fs::Permissions::from_mode(0o777)).unwrap(),
        |session| fs::hard_link(session.join("home/.gitconfig"), session.parent().unwrap().join("beside")).unwrap(),
        |session| fs::remove_dir(session.join("tmp")).unwrap(),
        |session| {
            fs::remove_file(session.join("home/.gitconfig")).unwrap();
            symlink("/etc/passwd", session.join("home/.gitconfig")).unwrap();
        },
        |session| {
            let link = session.join("cache/cargo/registry/cache");
            fs::remove_file(&link).unwrap();
            symlink("/etc", link).unwrap();
        },
    ];
    for (number, leave) in leave.iter().enumerate() {
        let resolved = machine.resolve("build").unwrap();
        let held = furnish(&resolved, &machine.here).unwrap();
        leave(&resolved.charter.session_dir);
        drop(held);
        assert!(!resolved.charter.session_dir.exists(), "{number}");
    }
}

#[test]
fn a_folder_that_a_command_made_read_only_is_removed() {
    let machine = Machine::new();
    let resolved = machine.resolve("build").unwrap();
    let held = furnish(&resolved, &machine.here).unwrap();
    let locked = resolved.charter.session_dir.join("cache/go/pkg/mod");
    make(&locked.join("x")).unwrap();
    symlink(&machine.base, locked.join("link")).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    drop(held);
    assert!(!resolved.charter.session_dir.exists() && machine.base.join("README").exists());
}

#[test]
fn as_root_the_folder_belongs_to_who_the_jails_are() {
    let machine = Machine::new();
    if machine.here.uid != 0 {
        return;
    }
    std::os::unix::fs::chown(&machine.base, Some(1234), Some(1234)).unwrap();
    let resolved = machine.resolve("build").unwrap();
    let _held = furnish(&resolved, &machine.here).unwrap();
    for name in ["", "home/.gitconfig", "tmp", "cache/cargo/registry"] {
        assert_eq!(fs::metadata(resolved.charter.session_dir.join(name)).unwrap().uid(), 1234, "{name}");
    }
    let cache = machine.here.root.join("home/p/.cargo/registry/cache");
    assert_eq!(fs::metadata(cache).unwrap().uid(), 0, "what a link leads to is not given away");
}

#[test]
fn the_index_of_npm_is_a_copy_and_only_for_a_project_of_node() {
    let machine = Machine::new();
    let npm = machine.here.root.join("home/p/.npm/_cacache");
    for folder in ["content-v2/sha512/aa", "index-v5/aa/bb"] {
        fs::create_dir_all(npm.join(folder)).unwrap();
    }
    fs::write(npm.join("index-v5/aa/bb/entry"), "x").unwrap();
    symlink(machine.here.root.join("etc/passwd"), npm.join("index-v5/aa/bb/link")).unwrap();
    for (node, there) in [(false, false), (true, true)] {
        if node {
            fs::write(machine.base.join("package.json"), "{}").unwrap();
        }
        let resolved = machine.resolve("build").unwrap();
        let held = furnish(&resolved, &machine.here).unwrap();
        let index = resolved.charter.session_dir.join("cache/npm/_cacache/index-v5/aa/bb");
        assert_eq!(index.join("entry").is_file(), there);
        assert!(index.join("link").symlink_metadata().is_err());
        assert!(resolved.charter.session_dir.join("cache/npm/_cacache/content-v2/sha512").is_dir());
        drop(held);
        assert!(!node || !resolved.charter.session_dir.exists());
    }
}
