use super::*;
use crate::tools::testbed::{self, Bed, soon};
use serde_json::{Value, json};

fn run(bed: &Bed, args: Value) -> Result<Found, Fault> {
    find(&bed.base, &testbed::args::<Find>(args), soon())
}

fn paths(bed: &Bed, args: Value) -> Vec<String> {
    run(bed, args).unwrap().entries.into_iter().map(|item| item.path).collect()
}

#[test]
fn patterns_find_what_they_say() {
    let bed = Bed::new(&[
        ("r.txt", ""),
        ("src/a.ts", ""),
        ("src/deep/b.ts", ""),
        ("a/b.md", ""),
        ("d/x", ""),
        ("d/e/f", ""),
        ("app/[id].tsx", ""),
        (".github/workflows/ci.yml", ""),
        (".git/config", ""),
        ("-name", ""),
    ]);
    for (args, right) in [
        (json!({"pattern": "src/**/*.ts"}), vec!["src/a.ts", "src/deep/b.ts"]),
        (json!({"pattern": "**/*.ts", "path": "src"}), vec!["src/a.ts", "src/deep/b.ts"]),
        (json!({"pattern": "deep/*.ts", "path": "src"}), vec!["src/deep/b.ts"]),
        (json!({"pattern": "a/b.md"}), vec!["a/b.md"]),
        (json!({"pattern": "b.md", "path": "a"}), vec!["a/b.md"]),
        (json!({"pattern": "*/x"}), vec!["d/x"]),
        (json!({"pattern": "d/**"}), vec!["d/e", "d/e/f", "d/x"]),
        (json!({"pattern": "**/r.txt"}), vec!["r.txt"]),
        (json!({"pattern": ["*.md", "*.txt"]}), vec!["a/b.md", "r.txt"]),
        (json!({"pattern": "*.{md,txt}"}), vec!["a/b.md", "r.txt"]),
        (json!({"pattern": "[!x]", "path": "d"}), vec!["d/e", "d/e/f"]),
        (json!({"pattern": "app/[id].tsx"}), vec!["app/[id].tsx"]),
        (json!({"pattern": "[id].tsx"}), vec!["app/[id].tsx"]),
        (json!({"pattern": ".github/**", "type": "file"}), vec![".github/workflows/ci.yml"]),
        (json!({"pattern": ".git/config"}), vec![".git/config"]),
        (json!({"pattern": ".git/**"}), vec![".git/config"]),
        (json!({"pattern": "config"}), vec![]),
        (json!({"pattern": "-name"}), vec!["-name"]),
        (json!({"pattern": "A.TS", "ignore_case": true}), vec!["src/a.ts"]),
        (json!({"pattern": "*.ts", "exclude": "deep"}), vec!["src/a.ts"]),
        (json!({"pattern": "*", "max_depth": 1, "type": "f"}), vec!["-name", "r.txt"]),
        (json!({"path": "d"}), vec!["d/e", "d/e/f", "d/x"]),
        (json!({"path": "d/x"}), vec!["d/x"]),
        (json!({"pattern": "e/", "type": "any"}), vec!["d/e"]),
        (json!({"pattern": bed.root.join("src/*.ts").to_str().unwrap()}), vec!["src/a.ts"]),
        (json!({"pattern": bed.root.join("src/a.ts").to_str().unwrap(), "path": "src"}), vec!["src/a.ts"]),
    ] {
        assert_eq!(paths(&bed, args.clone()), right, "{args}");
    }
}

#[test]
fn an_exact_path_is_found_though_it_is_ignored() {
    let bed = Bed::new(&[(".gitignore", "dist\n"), ("dist/app.js", ""), ("x.js", "")]);
    assert_eq!(paths(&bed, json!({"pattern": "dist/app.js"})), ["dist/app.js"]);
    assert_eq!(paths(&bed, json!({"pattern": "dist"})), ["dist"]);
    assert_eq!(paths(&bed, json!({"pattern": "*.js", "no_ignore": true})), ["dist/app.js", "x.js"]);
    let nothing = run(&bed, json!({"pattern": "dist/*.js"})).unwrap();
    assert_eq!(nothing.render(), "nothing found\n[1 entry is left out by ignore rules; no_ignore: true searches there too]");
    assert_eq!(paths(&bed, json!({"path": "dist"})), ["dist/app.js"]);
}

#[test]
fn mistakes_are_named() {
    let bed = Bed::new(&[("a", ""), ("{odd", "")]);
    for (args, code) in [
        (json!({"pattern": "../x"}), FaultCode::InvalidPattern),
        (json!({"pattern": "{a"}), FaultCode::InvalidPattern),
        (json!({"pattern": "/etc/*"}), FaultCode::OutsideWorkspace),
        (json!({"path": ".."}), FaultCode::OutsideWorkspace),
        (json!({"path": "nope"}), FaultCode::NotFound),
        (json!({"newer_than": "yesterday-ish"}), FaultCode::InvalidArguments),
    ] {
        assert_eq!(run(&bed, args.clone()).unwrap_err().code(), code, "{args}");
    }
    assert_eq!(paths(&bed, json!({"pattern": "{odd"})), ["{odd"]);
}

#[test]
fn sorting_comes_before_the_cut() {
    let bed = Bed::new(&[]);
    for n in 0..300 {
        bed.file(format!("d{}/f{n:03}", n % 7), vec![b'x'; n]);
    }
    let found = run(&bed, json!({"pattern": "f*", "sort": "size", "limit": 3})).unwrap();
    assert_eq!(found.entries.iter().map(|item| item.size).collect::<Vec<_>>(), [Some(299), Some(298), Some(297)]);
    assert!(found.render().ends_with("[shown 3 of 300 entries; offset 3 shows more]"));
    let found = run(&bed, json!({"pattern": "f*", "sort": "name", "limit": 2, "offset": 1})).unwrap();
    assert_eq!(found.entries.iter().map(|item| item.path.as_str()).collect::<Vec<_>>(), ["d1/f001", "d2/f002"]);
    assert_eq!(paths(&bed, json!({"min_size": "297", "max_size": 298})), ["d3/f297", "d4/f298"]);
    assert_eq!(run(&bed, json!({"limit": 300, "type": "file"})).unwrap().truncation, None);
}

#[test]
fn age_is_by_duration_time_or_file() {
    let bed = Bed::new(&[("old", ""), ("mid", ""), ("new", "")]);
    let at = |name: &str, seconds| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(bed.root.join(name)).unwrap().set_modified(time).unwrap();
    };
    at("old", 951_782_399);
    at("mid", 951_782_400);
    assert_eq!(paths(&bed, json!({"newer_than": "2000-02-29", "sort": "mtime"})), ["new", "mid"]);
    assert_eq!(paths(&bed, json!({"newer_than": "1h"})), ["new"]);
    assert_eq!(paths(&bed, json!({"newer_than": "old"})), ["mid", "new"]);
}

#[test]
fn the_golden_json() {
    let bed = Bed::new(&[("a/b", "12")]);
    bed.link("..", "up");
    let found = run(&bed, json!({})).unwrap();
    assert_eq!(
        serde_json::to_value(&found).unwrap(),
        json!({"entries": [{"path": "a", "type": "folder"}, {"path": "a/b", "type": "file"}, {"path": "up", "type": "link"}], "total": 3, "ignored": 0})
    );
    assert_eq!(found.render(), "a/\na/b\nup (link)\n[3 entries]");
}
