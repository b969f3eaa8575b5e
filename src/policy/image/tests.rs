use super::*;

#[test]
fn unknown_keys_and_wide_paths_are_errors() {
    for (text, says) in [
        ("bogus = 1", "`bogus`"),
        ("system = [{ path = \"/usr\", reason = \"x\", bogus = 1 }]", "`bogus`"),
        ("system = [{ path = \"/usr\" }]", "reason"),
        ("system = [{ path = \"/\", reason = \"x\" }]", "whole machine"),
        ("public = [{ path = \"etc\", reason = \"x\" }]", "absolute"),
        ("public = [{ path = \"/usr/../etc\", reason = \"x\" }]", "without `..`"),
        ("devices = [{ path = \"$HOME/x\", reason = \"x\" }]", "without variables"),
        ("toolchains = [\"pyton\"]", "pyton"),
        ("path = \"all\"", "all"),
    ] {
        let fault = Image::parse(text, "i.toml").unwrap_err();
        assert_eq!(fault.code(), FaultCode::InvalidPolicy);
        assert!(fault.message().contains(says), "{text}: {fault}");
    }
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let fault = Image::parse("name = \"x\"\n\nsystem = [\n  { path = \"/usr\", reason = \"x\", mode = 7 },\n]", "i.toml").unwrap_err();
    assert!(fault.message().starts_with("i.toml, line 4: ") && fault.message().contains("`mode`"), "{fault}");
}

#[test]
fn reach_follows_owner_group_and_others_as_the_kernel_does() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("a");
    fs::create_dir(&inner).unwrap();
    let meta = fs::metadata(&inner).unwrap();
    let (me, other) = (Identity { uid: meta.uid(), gid: meta.gid() }, Identity { uid: meta.uid() + 1, gid: meta.gid() + 1 });
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (mode, mine, others) in [(0o700, true, false), (0o755, true, true), (0o075, false, true), (0o001, false, true)] {
        fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!((reach(&inner, me), reach(&inner, other)), (mine, others), "{mode:o}");
    }
    assert!(!reach(&dir.path().join("absent"), me));
}
