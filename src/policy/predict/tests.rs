use super::super::resolve::tests::Machine;
use super::super::{Grants, Rights};
use super::*;
use proptest::prelude::*;

const MAKE: Act<'static> = Act::Make(Made::Other);

fn spot(path: &Path) -> Spot {
    Spot::find(Path::new("/"), path, false).unwrap()
}

#[test]
fn predictions() {
    let machine = Machine::new();
    let charter = machine.resolve("build").unwrap().charter;
    let (base, root) = (&machine.base, &machine.here.root);
    for walls in [Walls::default(), Walls { mounts: true, own: Own::default() }] {
        for (access, path, act, allowed) in [
            (Access::Look, base.join("README"), Act::Read, true),
            (Access::Look, base.join("README"), Act::Write, false),
            (Access::Look, root.join("etc/passwd"), Act::Read, false),
            (Access::Change, base.join("new"), MAKE, true),
            (Access::Change, base.join("bin/evil"), Act::Exec, false),
            (Access::Execute, base.join("bin/evil"), Act::Exec, true),
            (Access::Execute, root.join("etc/passwd"), Act::Read, true),
            (Access::Execute, root.join("etc/passwd"), Act::Write, false),
            (Access::Execute, root.join("etc/shadow"), Act::Read, false),
            (Access::Execute, root.join("dev/null"), Act::Write, true),
            (Access::Execute, root.join("dev/null"), Act::Remove, false),
            (Access::Execute, base.join(".git/hooks/pre-commit"), MAKE, false),
            (Access::Execute, base.join(".git/config"), Act::Write, false),
            (Access::Execute, base.join(".git/config"), Act::Read, true),
            (Access::Execute, base.join(".git/index"), MAKE, true),
            (Access::Execute, base.clone(), Act::Remove, false),
            (Access::Change, base.join("README"), Act::Metadata, false),
            (Access::Execute, root.join("etc/passwd"), Act::Metadata, !walls.mounts),
        ] {
            let verdict = predict(&charter, walls, access, &spot(&path), act);
            assert_eq!(verdict.allowed, allowed, "{walls:?} {access:?} {} {act:?}: {verdict:?}", path.display());
        }
    }
    let observe = machine.resolve("observe").unwrap().charter;
    assert_eq!(predict(&observe, Walls::default(), Access::Execute, &spot(base), Act::Read).by, By::NoAccess);
}

#[test]
fn a_path_is_judged_where_it_leads() {
    let machine = Machine::new();
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, machine.base.join(name)).unwrap();
    link(&machine.here.root.join("etc"), "link");
    link(Path::new("loop"), "loop");
    link(Path::new("not-yet"), "dangling");
    let led = |path: &str, follow| Spot::find(&machine.base, Path::new(path), follow).map(|spot| spot.real);
    for follow in [true, false] {
        assert_eq!(led("link/shadow", follow), Some(machine.here.root.join("etc/shadow")));
        assert_eq!(led("link/../opt", follow), Some(machine.here.root.join("opt")));
        assert_eq!(led("link/", follow), Some(machine.here.root.join("etc")));
        assert_eq!(led("new/file", follow), Some(machine.base.join("new/file")));
        assert_eq!(led("absent/../../other/secret", follow), None);
    }
    assert_eq!((led("link", true), led("link", false)), (Some(machine.here.root.join("etc")), Some(machine.base.join("link"))));
    assert_eq!((led("loop", true), led("loop", false)), (None, Some(machine.base.join("loop"))));
    assert_eq!(led("dangling", true), Some(machine.base.join("not-yet")));
}

/// What is beneath an allowed folder is allowed, and nothing outside of every grant ever is.
#[test]
fn rights_reach_down_and_never_out() {
    let grant = |path: &str, rights| Grant { path: path.into(), rights, reason: "r".into(), origin: "o".into() };
    let mut charter = Machine::new().resolve("observe").unwrap().charter;
    charter.protect.clear();
    charter.execute = Some(Grants(vec![grant("/w", Rights::ALL), grant("/usr", Rights::RUN)]));
    proptest!(|(parts in proptest::collection::vec("[a-z]{1,3}", 1..4), act in 0usize..4)| {
        let act = [Act::Read, Act::Write, MAKE, Act::Exec][act];
        let rest: PathBuf = parts.iter().collect();
        let allowed = |top: &str| {
            let at = Spot { real: Path::new(top).join(&rest), via: Vec::new(), linked: None, kind: None };
            predict(&charter, Walls::default(), Access::Execute, &at, act).allowed
        };
        prop_assert!(allowed("/w") && !allowed("/wx") && !allowed("/opt"));
        prop_assert_eq!(allowed("/usr"), matches!(act, Act::Read | Act::Exec));
    });
}
