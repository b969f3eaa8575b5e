use crate::envelope::FaultCode;
use crate::policy::Access;
use crate::tools::testing::{Workspace, own_process};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

#[test]
fn a_tree_is_copied_with_modes_and_links() {
    own_process(|| {
        let ws = Workspace::new();
        fs::create_dir_all(ws.at("a/b")).unwrap();
        fs::write(ws.at("a/run"), "#!").unwrap();
        fs::set_permissions(ws.at("a/run"), fs::Permissions::from_mode(0o751)).unwrap();
        fs::write(ws.at("a/b/big"), vec![7; 3 << 20]).unwrap();
        symlink("run", ws.at("a/lnk")).unwrap();
        symlink("../../outside", ws.at("a/out")).unwrap();
        nix::unistd::mkfifo(&ws.at("a/p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::set_permissions(ws.at("a/b"), fs::Permissions::from_mode(0o555)).unwrap();
        ws.confined(Access::Change, |desk| {
            let data = desk.done("copy", json!({"source": "a/", "destination": "deep/c"}));
            assert_eq!((&data["files"], &data["folders"], &data["links"]), (&json!(2), &json!(2), &json!(2)));
            assert_eq!(data["skipped"], json!(["a/p: a FIFO"]));
            assert_eq!(fs::metadata(ws.at("deep/c/run")).unwrap().mode() & 0o7777, 0o751);
            assert_eq!(fs::metadata(ws.at("deep/c/b")).unwrap().mode() & 0o7777, 0o555);
            assert_eq!(ws.bytes("deep/c/b/big"), vec![7; 3 << 20]);
            assert_eq!(fs::read_link(ws.at("deep/c/lnk")).unwrap(), Path::new("run"));
            assert_eq!(fs::read_link(ws.at("deep/c/out")).unwrap(), Path::new("../../outside"));
            assert_eq!(desk.refused("copy", json!({"source": "a", "destination": "deep/c"})), FaultCode::AlreadyExists);
            assert_eq!(desk.refused("copy", json!({"source": "a", "destination": "a/b/c"})), FaultCode::InvalidArguments);
            assert_eq!(desk.refused("copy", json!({"source": ".", "destination": "x"})), FaultCode::InvalidArguments);
            assert_eq!(desk.refused("copy", json!({"source": "none", "destination": "x"})), FaultCode::NotFound);
        });
        ws.assert_outside_untouched();
    });
}

#[test]
fn a_copy_overwrites_only_when_asked_and_only_files() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("a"), "a").unwrap();
        fs::write(ws.at("b"), "b").unwrap();
        fs::create_dir(ws.at("d")).unwrap();
        std::os::unix::fs::symlink("nowhere", ws.at("l")).unwrap();
        ws.confined(Access::Change, |desk| {
            assert_eq!(desk.refused("copy", json!({"source": "a", "destination": "b"})), FaultCode::AlreadyExists);
            assert_eq!(desk.refused("copy", json!({"source": "a", "destination": "a", "overwrite": true})), FaultCode::NoChange);
            assert_eq!(desk.refused("copy", json!({"source": "a", "destination": "d", "overwrite": true})), FaultCode::AlreadyExists);
            assert_eq!(ws.bytes("b"), b"b");
            desk.done("copy", json!({"source": "a", "destination": "b", "overwrite": true}));
            assert_eq!(ws.bytes("b"), b"a");
            fs::hard_link(ws.at("b"), ws.at("b2")).unwrap();
            fs::write(ws.at("a"), "new").unwrap();
            assert_eq!(desk.refused("copy", json!({"source": "a", "destination": "b", "overwrite": true})), FaultCode::HardLinked);
            // A link has the name as well, wherever it leads.
            assert_eq!(desk.refused("copy", json!({"source": "a", "destination": "l"})), FaultCode::AlreadyExists);
            assert!(!fs::exists(ws.at("nowhere")).unwrap());
            // A folder onto a folder fills it up.
            desk.done("mkdir", json!({"path": "e"}));
            fs::write(ws.at("e/x"), "x").unwrap();
            fs::write(ws.at("d/y"), "y").unwrap();
            desk.done("copy", json!({"source": "e", "destination": "d", "overwrite": true}));
            assert_eq!((ws.bytes("d/x"), ws.bytes("d/y")), (b"x".to_vec(), b"y".to_vec()));
            // What stops on the way says how far it came.
            desk.done("mkdir", json!({"path": "e/z"}));
            fs::write(ws.at("d/z"), "a file").unwrap();
            let envelope = desk.call("copy", json!({"source": "e", "destination": "d", "overwrite": true}));
            let data = envelope.data();
            assert_eq!((&data["code"], &data["incomplete"], &data["files_copied"]), (&json!("already_exists"), &json!("d"), &json!(1)));
        });
    });
}

#[test]
fn holes_stay_holes() {
    own_process(|| {
        let ws = Workspace::new();
        let file = fs::File::create(ws.at("sparse")).unwrap();
        file.set_len(1 << 32).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"middle", 1 << 31).unwrap();
        ws.confined(Access::Change, |desk| {
            desk.done("copy", json!({"source": "sparse", "destination": "copy"}));
            let meta = fs::metadata(ws.at("copy")).unwrap();
            assert_eq!(meta.len(), 1 << 32);
            assert!(meta.blocks() < 1_000, "{}", meta.blocks());
            let mut middle = [0; 6];
            std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(ws.at("copy")).unwrap(), &mut middle, 1 << 31).unwrap();
            assert_eq!(&middle, b"middle");
        });
    });
}

#[test]
fn renaming_replaces_only_when_asked() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("a"), "a").unwrap();
        fs::write(ws.at("b"), "b").unwrap();
        fs::create_dir_all(ws.at("d/full")).unwrap();
        fs::create_dir_all(ws.at("e/empty")).unwrap();
        ws.confined(Access::Change, |desk| {
            assert_eq!(desk.refused("rename", json!({"source": "a", "destination": "b"})), FaultCode::AlreadyExists);
            assert_eq!(desk.refused("rename", json!({"source": "a", "destination": "a"})), FaultCode::NoChange);
            assert_eq!(desk.refused("rename", json!({"source": "none", "destination": "x/y"})), FaultCode::NotFound);
            assert!(!ws.at("x").exists());
            assert_eq!(desk.refused("rename", json!({"source": "d", "destination": "d/full/x"})), FaultCode::InvalidArguments);
            assert_eq!(desk.refused("rename", json!({"source": "d", "destination": "e", "overwrite": true})), FaultCode::DirectoryNotEmpty);
            assert_eq!(desk.refused("rename", json!({"source": "a", "destination": "d", "overwrite": true})), FaultCode::IsDirectory);
            assert_eq!(desk.refused("rename", json!({"source": "d", "destination": "a", "overwrite": true})), FaultCode::NotDirectory);
            assert_eq!(desk.refused("rename", json!({"source": ".", "destination": "x"})), FaultCode::IsDirectory);
            let data = desk.done("rename", json!({"source": "a", "destination": "b", "overwrite": true}));
            assert_eq!(data["replaced"], true);
            assert_eq!(ws.bytes("b"), b"a");
            assert!(!ws.at("a").exists());
            desk.done("rename", json!({"old_path": "d/", "new_path": "new/place/"}));
            assert!(ws.at("new/place/full").is_dir() && !ws.at("d").exists());
            fs::hard_link(ws.at("b"), ws.at("b2")).unwrap();
            desk.done("rename", json!({"source": "b", "destination": "b2", "overwrite": true}));
            assert!(!ws.at("b").exists() && ws.at("b2").exists());
        });
    });
}

#[test]
fn what_is_known_of_a_file_goes_with_its_name() {
    own_process(|| {
        let ws = Workspace::new();
        ws.confined(Access::Change, |desk| {
            desk.done("write", json!({"path": "a", "content": "a"}));
            desk.done("rename", json!({"source": "a", "destination": "b"}));
            desk.done("write", json!({"path": "a", "content": "another"}));
            fs::write(ws.at("b"), "theirs").unwrap();
            assert_eq!(desk.refused("write", json!({"path": "b", "content": "ours"})), FaultCode::StaleFile);
        });
    });
}

#[test]
fn folders_are_made_with_their_parents() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("f"), "f").unwrap();
        symlink("nowhere/else", ws.at("dangling")).unwrap();
        ws.confined(Access::Change, |desk| {
            assert_eq!(desk.answer("mkdir", json!({"path": "a/b/c/"})).text, "created a/b/c/");
            assert_eq!(desk.done("mkdir", json!({"path": "a/b"}))["created"], false);
            assert_eq!(desk.done("mkdir", json!({"path": "."}))["created"], false);
            assert_eq!(desk.refused("mkdir", json!({"path": "f"})), FaultCode::AlreadyExists);
            assert_eq!(desk.refused("mkdir", json!({"path": "new/../f/x"})), FaultCode::NotDirectory);
            assert!(!ws.at("new").exists());
            assert_eq!(desk.refused("mkdir", json!({"path": "dangling"})), FaultCode::AlreadyExists);
            assert!(ws.at("a/b/c").is_dir());
        });
    });
}
