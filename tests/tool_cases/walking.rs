//! `grep`, `find` and `ls`.

use crate::desk::{Desk, Row, numbers, run, strings};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

#[test]
fn what_is_there_is_found() {
    run(ROWS);
}

fn find(d: &Desk, args: Value) -> Vec<String> {
    strings(&d.done("find", args)["entries"], "path").into_iter().map(str::to_owned).collect()
}

const ROWS: &[Row] = &[
    ("T89", |d| {
        d.put("t89/.github/workflows/ci.yml", "t89word\n");
        d.put("t89/.git/config", "t89word\n");
        let found = d.done("grep", json!({"pattern": "t89word", "path": "t89"}));
        assert_eq!(strings(&found["files"], "path"), ["t89/.github/workflows/ci.yml"]);
        assert!(find(d, json!({"pattern": ".github/**", "path": "t89"})).contains(&"t89/.github/workflows/ci.yml".to_owned()));
        assert!(find(d, json!({"pattern": "t89/.github/**"})).contains(&"t89/.github/workflows/ci.yml".to_owned()));
    }),
    ("T90", |d| {
        d.put("t90/.gitignore", "scripts/*\n");
        d.put("t90/scripts/a.py", "t90word\n");
        let reply = d.call("grep", json!({"pattern": "t90word", "path": "t90"}));
        assert!(
            reply.text.contains("1 left out by ignore rules") && reply.text.contains("1 matching line in 1 ignored file"),
            "{}",
            reply.text
        );
        let found = reply.into_data();
        assert_eq!(
            (&found["total"], &found["counts"]["ignored"], &found["ignored_hits"]["matches"]),
            (&json!(0), &json!(1), &json!(1)),
            "{found}"
        );
        assert_eq!(d.done("grep", json!({"pattern": "t90word", "path": "t90/scripts/a.py"}))["total"], 1);
        // A folder that is named is searched, whether the rules name it or all that is in it; alone and beside a folder that holds it.
        for rules in ["scripts/*\n", "scripts/**\n", "scripts/\n", "scripts\n", "/scripts/*\n!scripts/other\n", "*\n"] {
            d.put("t90/.gitignore", rules);
            assert_eq!(d.done("grep", json!({"pattern": "t90word", "path": "t90/scripts"}))["total"], 1, "{rules}");
            assert_eq!(d.done("grep", json!({"pattern": "t90word", "path": ["t90", "t90/scripts"]}))["total"], 1, "{rules}");
            assert_eq!(find(d, json!({"pattern": "*.py", "path": "t90/scripts"})), ["t90/scripts/a.py"], "{rules}");
            assert_eq!(d.done("grep", json!({"pattern": "t90word", "path": "t90"}))["total"], 0, "{rules}");
        }
        // Rules for some of what is in a folder still hold when the folder is named.
        d.put("t90/scripts/b.o", "t90word\n");
        d.put("t90/.gitignore", "*.o\n");
        assert_eq!(strings(&d.done("grep", json!({"pattern": "t90word", "path": "t90/scripts"}))["files"], "path"), ["t90/scripts/a.py"]);
        d.put("t90/.gitignore", "*\n!*/\n!*.py\n");
        assert_eq!(strings(&d.done("grep", json!({"pattern": "t90word", "path": "t90/scripts"}))["files"], "path"), ["t90/scripts/a.py"]);
        std::fs::remove_file(d.at("t90/scripts/b.o")).unwrap();
        assert_eq!(d.done("grep", json!({"pattern": "t90word", "path": "t90", "no_ignore": true}))["total"], 1);
    }),
    ("T91", |d| {
        d.put("t91/.gitignore", "dist\n");
        d.put("t91/dist/app.js", "x\n");
        assert_eq!(find(d, json!({"pattern": "dist/app.js", "path": "t91"})), ["t91/dist/app.js"]);
        assert_eq!(find(d, json!({"pattern": "t91/dist/app.js"})), ["t91/dist/app.js"]);
    }),
    ("T93", |d| {
        d.put("t93", format!("{}NEEDLE{}\n", "a".repeat(3000), "b".repeat(3000)));
        let found = d.done("grep", json!({"pattern": "NEEDLE", "path": "t93"}));
        let line = &found["files"][0]["lines"][0];
        assert!(line["text"].as_str().unwrap().contains("NEEDLE") && line["column"] == 3001, "{line}");
    }),
    ("T94", |d| {
        d.put("t94/f", "a -77 b\nuse --pdf-engine x\np->q\n");
        d.put("t94/-x", "in a dash -name\n");
        d.put("t94/-name", "x\n");
        for pattern in ["-77", "--pdf-engine", "->"] {
            assert_eq!(d.done("grep", json!({"pattern": pattern, "path": "t94"}))["total"], 1, "{pattern}");
        }
        assert_eq!(find(d, json!({"pattern": "-name", "path": "t94"})), ["t94/-name"]);
        assert_eq!(d.done("grep", json!({"pattern": "dash", "path": "t94/-x"}))["total"], 1);
        d.put("-t94", "dash at the top\n");
        assert_eq!(d.done("grep", json!({"pattern": "top", "path": "-t94"}))["total"], 1);
        assert_eq!(d.done("read", json!({"path": "-t94"}))["total_lines"], 1);
    }),
    ("T96", |d| {
        d.put("t96/f", "foobar\nfoobaz\n");
        let found = d.done("grep", json!({"pattern": "foo(?!bar)", "path": "t96"}));
        assert_eq!(found["engine"], "bounded");
        assert_eq!(numbers(&found["files"][0]["lines"], "line"), [2]);
        let (code, said) = d.refused("grep", json!({"pattern": "foo(", "path": "t96"}));
        assert_eq!(code, "invalid_pattern");
        assert!(said["data"]["position"].is_number() || said["error"].as_str().unwrap().contains('4'), "{said}");
    }),
    ("T98", |d| {
        d.put("t98/f", "needle\r\nx needle\r\n");
        for (pattern, lines) in [("needle$", vec![1, 2]), ("^needle$", vec![1])] {
            let found = d.done("grep", json!({"pattern": pattern, "path": "t98"}));
            assert_eq!(numbers(&found["files"][0]["lines"], "line"), lines, "{pattern}");
            assert!(!found.to_string().contains("\\r"), "{found}");
        }
    }),
    ("T100", |d| {
        d.put("t100/src/a/b/c.ts", "");
        d.put("t100/src/top.ts", "");
        d.put("t100/a/b.md", "");
        d.put("t100/one/x", "");
        d.put("t100/one/two/x", "");
        for (pattern, files) in
            [("src/**/*.ts", vec!["t100/src/a/b/c.ts", "t100/src/top.ts"]), ("a/b.md", vec!["t100/a/b.md"]), ("*/x", vec!["t100/one/x"])]
        {
            assert_eq!(find(d, json!({"pattern": pattern, "path": "t100"})), files, "{pattern} in t100");
            assert_eq!(find(d, json!({"pattern": format!("t100/{pattern}")})), files, "t100/{pattern}");
        }
    }),
    ("T102", |d| {
        d.put("t102/d/f", "");
        d.put("t102/d/e/g", "");
        d.put("t102/r.txt", "");
        let all = find(d, json!({"pattern": "d/**", "path": "t102"}));
        assert!(all.contains(&"t102/d/f".into()) && all.contains(&"t102/d/e/g".into()), "{all:?}");
        assert_eq!(find(d, json!({"pattern": "**/r.txt", "path": "t102"})), ["t102/r.txt"]);
        d.put("t102root", "");
        assert_eq!(find(d, json!({"pattern": "**/t102root"})), ["t102root"]);
    }),
    ("T104", |d| {
        for number in 0..201 {
            d.put(&format!("t104/{number:03}"), "t104word\n");
        }
        for (tool, args) in [
            ("find", json!({"pattern": "*", "path": "t104", "limit": 200})),
            ("ls", json!({"path": "t104", "limit": 200})),
            ("grep", json!({"pattern": "t104word", "path": "t104", "limit": 200})),
        ] {
            let found = d.done(tool, args);
            let cut = &found["truncation"];
            assert_eq!((&found["total"], &cut["shown"], &cut["next_offset"]), (&json!(201), &json!(200), &json!(200)), "{tool}: {cut}");
        }
        let found = d.done("find", json!({"pattern": "*", "path": "t104", "limit": 201}));
        assert!(found.get("truncation").is_none() && found["total"] == 201, "the exact limit cuts nothing");
    }),
    ("T107", |d| {
        d.put("t107/ok", "");
        symlink("nowhere", d.at("t107/b")).unwrap();
        symlink("loop", d.at("t107/loop")).unwrap();
        symlink("../../outside/secret", d.at("t107/out")).unwrap();
        let text = d.call("ls", json!({"path": "t107"})).text;
        assert!(text.contains("b -> nowhere (broken)"), "{text}");
        assert!(text.contains("loop -> loop (broken)"), "{text}");
        assert!(text.contains("ok") && text.contains("out -> ../../outside/secret (outside"), "{text}");
    }),
    ("T108", |d| {
        std::fs::create_dir(d.at("t108")).unwrap();
        for number in 0..200_000 {
            std::fs::File::create(d.at("t108").join(format!("f{number:06}"))).unwrap();
        }
        for (tool, args) in [("ls", json!({"path": "t108", "limit": 50})), ("find", json!({"pattern": "f*", "path": "t108", "limit": 50}))]
        {
            let started = Instant::now();
            let found = d.done(tool, args.clone());
            assert_eq!((&found["total"], found["entries"].as_array().unwrap().len()), (&json!(200_000), 50), "{tool}");
            assert!(started.elapsed() < Duration::from_secs(20), "{tool}: {:?}", started.elapsed());
            assert_eq!(d.done(tool, args), found, "the page is the same again");
        }
        std::fs::remove_dir_all(d.at("t108")).unwrap();
    }),
    ("T110", |d| {
        std::fs::write(d.space.outside().join("t110.rs"), "t110word outside\n").unwrap();
        symlink("../../outside/t110.rs", {
            d.put("t110/in.rs", "t110word\n");
            d.at("t110/l.rs")
        })
        .unwrap();
        symlink("../../outside", d.at("t110/folder")).unwrap();
        let found = d.done("grep", json!({"pattern": "t110word", "path": "t110"}));
        assert_eq!(strings(&found["files"], "path"), ["t110/in.rs"]);
        for path in ["t110/l.rs", "t110/folder", "t110/folder/t110.rs"] {
            assert_eq!(d.refused("grep", json!({"pattern": "t110word", "path": path})).0, "outside_workspace", "{path}");
        }
    }),
];
