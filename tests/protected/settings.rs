//! What the settings of a repository name: hooks, programs, files of settings and trees elsewhere.

use super::*;

#[test]
fn hooks_that_the_settings_name_are_protected() {
    if !has("git") {
        skip!("no git");
    }
    for alone in [false, true] {
        let (space, _) = space(Layout::Clone);
        git(&space.ws(), "git config core.hooksPath .githooks");
        let hook = format!("printf '#!/bin/sh\\ntouch {}' > .githooks/pre-commit", space.path("outside/pwned").display());
        let called = bash(&space, alone, &format!("mkdir -p .githooks; {hook}; chmod +x .githooks/pre-commit; true"));
        host_works(&space);
        assert!(!pwned(&space), "alone {alone}: {}", called.line);
        let args = json!({ "path": ".githooks/pre-commit", "content": "#!/bin/sh\n" }).to_string();
        let flags: &[&str] = if alone { &["--without-namespaces"] } else { &[] };
        let output = space.run(flags.iter().copied().chain(["tool", "write", &args]));
        assert!(String::from_utf8_lossy(&output.stdout).contains("protected"), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn where_a_submodule_leads_stays() {
    if !has("git") {
        skip!("no git");
    }
    for alone in [false, true] {
        let (space, _) = space(Layout::Submodule);
        let before = fs::read(space.ws().join("s/.git")).unwrap();
        let called = bash(&space, alone, "cp -r .git/modules/s e; echo 'gitdir: ../e' > s/.git; true");
        assert_eq!(fs::read(space.ws().join("s/.git")).unwrap(), before, "alone {alone}: {}", called.line);
        assert!(called.data()["notices"].to_string().contains("s/.git is protected"), "alone {alone}: {}", called.line);
    }
}

#[test]
fn settings_that_run_nothing_stay() {
    if !has("git") {
        skip!("no git");
    }
    // Where mounts are, git's own replacing of an existing file is refused; a repository made inside is judged by key on both rungs.
    for alone in [false, true] {
        let (space, _) = space(Layout::Empty);
        let called = bash(
            &space,
            alone,
            "git init -q r && cd r && git config user.name X && git config alias.l 'log --oneline' && git config alias.e '!x'",
        );
        let notices = called.data()["notices"].to_string();
        let config = fs::read_to_string(space.ws().join("r/.git/config")).unwrap();
        assert!(config.contains("name = X") && config.contains("log --oneline") && !config.contains("!x"), "{config}");
        assert!(notices.contains("alias.e") && !notices.contains("alias.l,"), "{notices}");
    }
}

/// Each spelling of where hooks are, and settings that settings include.
#[test]
fn what_the_settings_name_is_protected_in_each_spelling() {
    if !has("git") {
        skip!("no git");
    }
    let hook = |file: &str| format!("mkdir -p $(dirname {file}); printf '#!/bin/sh\\ntouch {{P}}' > {file}; chmod +x {file}; true");
    let tool = "printf '#!/bin/sh\\n' > tool; chmod +x tool".to_owned();
    let evil = "printf '#!/bin/sh\\ntouch {P}\\n' > tool; chmod +x tool; true".to_owned();
    let monitor = |file: &str| format!("printf '#!/bin/sh\\ntouch {{P}}' > {file}; chmod +x {file}; true");
    let made = "git init -q n/m; git -C n/m config core.fsmonitor 'touch {P}'".to_owned();
    let rows = [
        ("mkdir -p src; git config core.hooksPath src/../.githooks", hook(".githooks/pre-commit")),
        ("git config extensions.worktreeConfig true; git config --worktree core.hooksPath wt", hook("wt/pre-commit")),
        ("mkdir real; ln -s real .githooks; git config core.hooksPath .githooks", hook("real/pre-commit")),
        ("mkdir real; rm -r .git/hooks; ln -s ../real .git/hooks", hook("real/pre-commit")),
        ("printf '[core]\\n\\thooksPath = inc\\n' > my.cfg; git config include.path ../my.cfg", hook("inc/pre-commit")),
        (
            "git config include.path ../shared.cfg; touch shared.cfg",
            "printf '[core]\\n\\tfsmonitor = touch {P}\\n' > shared.cfg; true".into(),
        ),
        ("git config include.path ../absent.cfg", "printf '[core]\\n\\tfsmonitor = touch {P}\\n' > absent.cfg; true".into()),
        (&format!("{tool}; git config alias.st '!./tool'"), evil.clone()),
        (&format!("{tool}; git config alias.st '!sh tool -x'"), evil.clone()),
        ("git config alias.st '!./tool'", evil.clone()),
        (&format!("{tool}; git config filter.x.clean ./tool; echo '* filter=x' > .gitattributes"), evil.clone()),
        (&format!("{tool}; git config diff.x.textconv ./tool; echo '* diff=x' > .gitattributes"), evil.clone()),
        (&format!("{tool}; git config diff.external ./tool"), evil.clone()),
        (&format!("{tool}; git config core.fsmonitor ./tool"), evil.clone()),
        (
            "git config filter.x.clean 'touch {P}; cat'; git config core.attributesFile attr; touch attr",
            "echo '* filter=x' > attr; true".into(),
        ),
        // As a shell takes them.
        ("mkdir d; git config core.fsmonitor 'cd d && ./mon'", monitor("d/mon")),
        ("git config core.fsmonitor \"'./m on' -x\"", monitor("'m on'")),
        ("mkdir d; git config core.fsmonitor \"sh -c 'cd d; sh mon'\"", monitor("d/mon")),
        ("git config core.fsmonitor 'python3 -m mon'", "echo \"open('{P}', 'w')\" > mon.py".into()),
        ("git config core.fsmonitor 'python3 -m mon.it'", "mkdir mon; echo \"open('{P}', 'w')\" > mon/__init__.py".into()),
        ("git config core.fsmonitor 'python3 -um mon'", "echo \"open('{P}', 'w')\" > mon.py".into()),
        ("git config alias.st '!sh < mon'", monitor("mon")),
        // A linked tree.
        ("git worktree add -q wt; git config core.fsmonitor ./mon", monitor("wt/mon")),
        ("git worktree add -q wt; git config core.hooksPath .gh", hook("wt/.gh/pre-commit")),
        // A repository within.
        ("git init -q n; git -C n config core.hooksPath .gh", hook("n/.gh/pre-commit")),
        (
            "git init -q n; git -C n config include.path ../inc.cfg",
            "printf '[core]\\n\\tfsmonitor = touch {P}\\n' > n/inc.cfg; true".into(),
        ),
        (
            &format!("git init -q n; {}; git -C n config alias.st '!./tool'", tool.replace(" tool", " n/tool")),
            evil.replace(" tool", " n/tool"),
        ),
        // A folder that nobody may look into, and one that may be entered.
        ("mkdir n; chmod 000 n", format!("chmod 700 n; {made}; chmod 000 n")),
        ("mkdir n; chmod 311 n", made.clone()),
        ("mkdir -p n/k; chmod 311 n", made.replace("n/m", "n/k/m")),
    ];
    let run = |space: &Space, script: &str| {
        let output = Command::new("bash").args(["-c", script]).current_dir(space.ws()).envs(WHO).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    };
    for (before, attack) in rows {
        let fill = |space: &Space, script: &str| script.replace("{P}", space.path("outside/pwned").to_str().unwrap());
        let attack_in = |space: &Space| fill(space, &attack);
        let (open, _) = self::space(Layout::Clone);
        run(&open, &fill(&open, before));
        run(&open, &attack_in(&open));
        host_works(&open);
        assert!(pwned(&open), "{before}: the attack does nothing on an open repository");
        for alone in [false, true] {
            let (space, _) = space(Layout::Clone);
            run(&space, &fill(&space, before));
            let called = bash(&space, alone, &attack_in(&space));
            host_works(&space);
            assert!(!pwned(&space), "{before}, alone {alone}: {}", called.line);
        }
    }
}
