use super::*;
use crate::tools::testbed::{self, Bed, soon};
use serde_json::{Value, json};

fn ls(bed: &Bed, args: Value) -> Result<Listing, Fault> {
    list(&bed.base, &testbed::args::<Ls>(args), soon())
}

fn text(bed: &Bed, args: Value) -> String {
    ls(bed, args).unwrap().render()
}

#[test]
fn nothing_is_left_out_and_links_say_where_they_lead() {
    let bed =
        Bed::new(&[("b.txt", "x"), ("a.txt", ""), ("z/", ""), (".hidden", ""), (".git/config", ""), ("dist/", ""), (".gitignore", "dist")]);
    bed.link("nowhere", "broken").link("loop", "loop").link("../secret", "out").link("/etc/passwd", "abs").link("b.txt", "good");
    bed.fifo("pipe").file(b"\xff\n", "");
    let expected = "\
.git/
dist/
z/
.gitignore
.hidden
a.txt
abs -> /etc/passwd (outside the workspace)
b.txt
broken -> nowhere (broken)
good -> b.txt
loop -> loop (broken)
out -> ../secret (outside the workspace)
pipe (fifo)
\\xff\\x0a
[14 entries]";
    assert_eq!(text(&bed, json!({})), expected);
    let listing = ls(&bed, json!({"all": false, "ignore": ["*.txt", "a*"]})).unwrap();
    let names: Vec<&str> = listing.entries.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["dist", "z", "broken", "good", "loop", "out", "pipe", "\\xff\\x0a"]);
}

#[test]
fn a_file_gives_that_entry_and_an_empty_folder_says_so() {
    let bed = Bed::new(&[("d/f", "12345"), ("e/", "")]);
    bed.link("nowhere", "l").link("d", "ld");
    assert_eq!(text(&bed, json!({"path": "d/f"})), "d/f\n[1 entry]");
    assert_eq!(text(&bed, json!({"path": "l"})), "l -> nowhere (broken)\n[1 entry]");
    assert_eq!(text(&bed, json!({"path": "ld"})), "f\n[1 entry]");
    assert_eq!(text(&bed, json!({"path": "./e/"})), "e is empty");
    assert_eq!(text(&bed, json!({"depth": 2})), "d/\nd/f\ne/\nl -> nowhere (broken)\nld -> d\n[5 entries]");
    for (path, code) in [("x", FaultCode::NotFound), ("..", FaultCode::OutsideWorkspace), ("/etc", FaultCode::OutsideWorkspace)] {
        assert_eq!(ls(&bed, json!({"path": path})).unwrap_err().code(), code, "{path}");
    }
}

#[test]
fn the_golden_json_and_the_long_form() {
    let bed = Bed::new(&[("d/", ""), ("f", "12345")]);
    bed.link("f", "l");
    let listing = ls(&bed, json!({})).unwrap();
    assert_eq!(
        serde_json::to_value(&listing).unwrap(),
        json!({"path": ".", "entries": [{"name": "d", "type": "folder"}, {"name": "f", "type": "file"}, {"name": "l", "type": "link", "target": "f"}], "total": 3})
    );
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(bed.root.join("f"), std::fs::Permissions::from_mode(0o4750)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(951_827_696);
    std::fs::File::options().write(true).open(bed.root.join("f")).unwrap().set_modified(time).unwrap();
    assert_eq!(text(&bed, json!({"path": "f", "long": true})), "-rwsr-x--- 5 2000-02-29T12:34:56Z f\n[1 entry]");
}

#[test]
fn pages_are_exact() {
    let bed = Bed::new(&[]);
    for n in 0..201 {
        bed.file(format!("{n:03}"), vec![b'x'; n]);
    }
    let listing = ls(&bed, json!({"limit": 200})).unwrap();
    assert_eq!((listing.entries.len(), listing.total), (200, 201));
    assert!(listing.render().ends_with("199\n[shown 200 of 201 entries; offset 200 shows more]"));
    let rest = ls(&bed, json!({"limit": 200, "offset": 200})).unwrap();
    assert_eq!((rest.entries.len(), rest.entries[0].name.as_str()), (1, "200"));
    assert!(ls(&bed, json!({"limit": 201})).unwrap().truncation.is_none());
    let largest = ls(&bed, json!({"limit": 2, "sort": "size"})).unwrap();
    assert_eq!(largest.entries.iter().map(|item| item.size).collect::<Vec<_>>(), [Some(200), Some(199)]);
    assert_eq!(ls(&bed, json!({"limit": 0})).unwrap_err().code(), FaultCode::InvalidArguments);
}

#[test]
fn newer_comes_first() {
    let bed = Bed::new(&[("a", ""), ("b", ""), ("c", "")]);
    for (name, seconds) in [("a", 5), ("b", 9), ("c", 7)] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(bed.root.join(name)).unwrap().set_modified(time).unwrap();
    }
    let names: Vec<String> = ls(&bed, json!({"sort": "mtime"})).unwrap().entries.into_iter().map(|item| item.name).collect();
    assert_eq!(names, ["b", "c", "a"]);
}
