//! Which lines of a program's output look like failures, by the wording of real tools.
//!
//! This only decides what is shown first when not everything fits. It never decides whether something failed: that is
//! the exit code's business.

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grade {
    /// How likely the line names the cause: 9 is a diagnostic that names a place or a value, 1 a mere warning.
    pub weight: u8,
    /// How many lines before it belong to it.
    pub before: usize,
    /// How many lines after it belong to it.
    pub after: usize,
}

/// A pattern, and what a line is that it matches.
struct Rule {
    pattern: &'static str,
    grade: Grade,
}

const fn rule(weight: u8, before: usize, after: usize, pattern: &'static str) -> Rule {
    Rule { pattern, grade: Grade { weight, before, after } }
}

/// The longest part of a line that is looked at, in bytes.
const LOOKED_AT: usize = 2048;

/// The table, by weight. Of several that match, the first counts.
const RULES: &[Rule] = &[
    // Diagnostics that name the cause.
    rule(9, 0, 5, r"^error\[E\d+\]"),                           // rustc
    rule(9, 0, 3, r"panicked at "),                             // Rust, message on the next line
    rule(9, 1, 3, r"^[^\s:]+:\d+(:\d+)?: (fatal )?error\b"),    // gcc, clang, javac, many linters
    rule(9, 0, 2, r"^[^\s(]+\(\d+(,\d+)?\): (fatal )?error\b"), // tsc, msvc
    rule(9, 0, 2, r"^[^\s:]+:\d+:\d+ - error TS\d+"),           // tsc --pretty
    rule(9, 0, 3, r"^\[ERROR\] \S+:\[\d+,\d+\]"),               // maven's compiler plugin
    rule(9, 1, 1, r"undefined reference to|undefined symbol: |multiple definition of|cannot find -l"), // ld
    rule(9, 3, 1, r"^([A-Za-z_]\w*\.)*[A-Za-z_]\w*(Error|Exception|Interrupt|Exit|Failure)\b(:|$| \[)"), // Python, Node, Java
    rule(9, 0, 3, r#"^(Caused by: |Exception in thread )"#),    // Java
    rule(9, 1, 3, r"^Uncaught |^Unhandled |^\s*(throw |Error: |\w+Error: |\w+Error \[)"), // Node
    rule(9, 1, 2, r"^E   +\S"),                                 // pytest
    rule(9, 0, 2, r"^(fatal|FATAL)(:| error)|: fatal: |\bfatal error:"), // git, C preprocessors
    rule(9, 0, 1, r"AddressSanitizer|ThreadSanitizer|UndefinedBehaviorSanitizer|runtime error: "),
    rule(9, 0, 2, r"Segmentation fault|core dumped|stack overflow|Bus error|Illegal instruction|Assertion .*failed|assertion .*failed"),
    rule(9, 1, 2, r"^(ERROR|CRITICAL|FATAL)\b.*:|\b(E|F)/[A-Z]\w+: "), // log levels
    rule(8, 1, 4, r"^--- FAIL|^\s+--- FAIL|^FAIL\b|^\s*\S+_test\.go:\d+: "), // go test
    rule(8, 0, 6, r"^\s*(✕|✗|✖|×|●|✘) ?\S|^not ok \d+"),               // jest, mocha, vitest, TAP, node --test
    rule(8, 0, 5, r"^(FAIL|ERROR): \S+ \(|^FAILED [^\s(]|^ERROR (collecting|at) "), // unittest, pytest
    rule(8, 0, 4, r"^---- .* stdout ----$"),                           // libtest
    rule(8, 0, 2, r"^\s*(left|right|expected|actual|got|want|Expected|Received)(:| to\b)"), // assertion diffs
    rule(8, 0, 1, r"^test .* \.\.\. FAILED$"),
    rule(8, 0, 2, r"\.(rs|c|cc|cpp|h|py|js|ts|go|java|rb|sh|toml|ya?ml|json)[:(]\d+.*\b[Ee]rror\b"),
    rule(8, 0, 2, r"^npm (ERR!|error) (code|errno|syscall|missing|notarget|404|Missing script|enoent)"),
    rule(8, 0, 2, r"^CONFLICT |merge conflict|Merge conflict|patch does not apply|patch failed:"),
    // Errors in words.
    rule(7, 0, 3, r"^\s*[Ee]rror: |^ERROR[: ]|^error\b"),
    rule(
        7,
        0,
        1,
        r"(: |^)(line \d+: )?.*: (command not found|No such file or directory|Permission denied|not found|Operation not permitted|Is a directory|Not a directory|Read-only file system|No space left on device|Connection refused|Broken pipe|Address already in use|File exists|Text file busy|Exec format error|Cannot allocate memory|Too many open files|unbound variable|syntax error.*|unexpected EOF.*|bad substitution)$",
    ),
    rule(
        7,
        0,
        2,
        r"command not found|unbound variable|syntax error|unexpected EOF|Permission denied|No such file or directory|Operation not permitted",
    ),
    rule(
        7,
        0,
        1,
        r"Could not resolve|could not resolve|Connection refused|Temporary failure in name resolution|getaddrinfo|ECONNREFUSED|ENOENT|EACCES|ENOTFOUND|ETIMEDOUT",
    ),
    rule(
        7,
        0,
        1,
        r"No module named|Cannot find module|cannot find (package|symbol|module)|Module not found|unresolved import|Unknown (option|command)|unrecognized (option|argument)|ModuleNotFound",
    ),
    rule(7, 0, 0, r"Out of memory|out of memory|OOM|Killed$|oom-kill|MemoryError|heap out of memory"),
    rule(6, 0, 3, r"^\s+--> \S+:\d+"), // rustc places
    rule(6, 0, 1, r"^(\[ERROR\]|npm ERR!|npm error) \S"),
    // Summaries.
    rule(
        5,
        0,
        0,
        r"^test result: FAILED|^FAILED \(|^={3,} .*(failed|error).* ={3,}$|^Tests?:? .*\b[1-9]\d* failed|^make(\[\d+\])?: \*\*\* |could not compile|BUILD FAILURE|^# fail [1-9]|ninja: build stopped",
    ),
    rule(5, 0, 12, r"^Traceback \(most recent call last\)"),
    rule(5, 0, 3, r"^failures:$|^\s*\d+ (failing|errors?)\b"),
    // Words that often go with failures.
    rule(4, 0, 1, r"\*\*\* |\bpanic(ked)?\b|\bfatal\b|\b[Ee]xception\b|\bERROR\b|\bFAILED\b|\bFAIL\b"),
    rule(
        3,
        0,
        1,
        r"(?i)\b(error|failed|failure|failing|fails|denied|refused|aborted|abort|killed|crash(ed)?|conflicts?|unresolved|undefined|mismatch(ed)?|violat\w+|unsatisfied|incompatible|rejected)\b",
    ),
    rule(
        2,
        0,
        0,
        r"(?i)\b(cannot|can't|could not|couldn't|unable to|invalid|missing|unexpected|unknown|not found|timed? ?out|does not exist|doesn't exist|not (a|allowed|supported|permitted))\b",
    ),
    rule(1, 0, 1, r"(?i)\bwarn(ing)?\b"),
];

/// Lines that speak of errors and are none.
const NOISE: &[&str] = &[
    r"(?i)\b(0|no|zero) (errors?|failures?|failed|failing|warnings?)\b",
    r"(?i)\b(errors?|failures?|failed|fail|warnings?)[:=] ?0\b",
    r"\.\.\. (ok|ignored)$|^ok \d+ |^\s*(✓|✔|√) |^PASS\b|\bPASSED\b",
    r"^\s*(Compiling|Checking|Downloaded|Downloading|Fresh|Documenting|Installing|Unpacking|Adding|Locking|Running|Updating) \S+",
    r"^\s*(gcc|g\+\+|cc|c\+\+|clang(\+\+)?|rustc|ar|ld|install|mkdir|cp|libtool:|/bin/sh) .*-",
    r"^(checking|configure:) .*\.\.\. ",
    r"^\[\s*\d+(%|/\d+)\] (Building|Linking|Built|CXX|CC)",
];

static GRADES: LazyLock<Option<RegexSet>> = LazyLock::new(|| set(RULES.iter().map(|rule| rule.pattern)));
static QUIET: LazyLock<Option<RegexSet>> = LazyLock::new(|| set(NOISE.iter().copied()));
static HINT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    RegexBuilder::new(concat!(
        r"(?i)error|fail|fatal|panic|exce|traceback|caused|undefined|unresolved|denied|refused|abort|assert|kill|crash|conflict|mismatch",
        r"|not |no such|no module|cannot|can't|could|unable|invalid|missing|unexpected|unknown|time|segm|fault|dumped|sanitizer|memory|oom",
        r"|\*\*\*|-->|thrown?|uncaught|unhandled|err!|warn|\nE  |left:|right:|expected|received|actual|got|want|stdout ----",
        r"|✕|✗|✖|×|●|✘|undef|unbound|syntax|interrupt|exit|overflow|illegal|ninja|_test|traceback|in function|enoent|eacces|econn|etimed|enotfound|permitted|exist|violat|unsat|incompat|reject|multiple def|patch"
    ))
    .unicode(false)
    .build()
    .ok()
});

fn set(patterns: impl Iterator<Item = &'static str>) -> Option<RegexSet> {
    // The patterns are constants and a test builds them; if one were wrong, no line would look like a failure.
    RegexSetBuilder::new(patterns).unicode(false).build().ok()
}

/// Judges one line. `line` is plain: without escape sequences and line end.
pub fn grade(line: &[u8]) -> Option<Grade> {
    let line = &line[..line.len().min(LOOKED_AT)];
    if line.len() < 3 {
        return None;
    }
    let matches = GRADES.as_ref()?.matches(line);
    let first = matches.iter().next()?;
    if RULES[first].grade.weight < 8 && QUIET.as_ref().is_some_and(|noise| noise.is_match(line)) {
        return None;
    }
    Some(RULES[first].grade)
}

/// The places in a block of lines where a failure might be: far cheaper than judging each line, and never misses one that
/// [`grade`] would give a weight.
pub fn hints(block: &[u8]) -> impl Iterator<Item = usize> + '_ {
    HINT.as_ref().into_iter().flat_map(move |hint| hint.find_iter(block).map(|found| found.end() - 1))
}

/// The shape of a line: equal for lines that differ only in numbers, hexadecimal words and blanks.
pub fn shape(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut blank = true;
    let mut number = false;
    for &byte in &line[..line.len().min(LOOKED_AT)] {
        if byte.is_ascii_digit() {
            if !number {
                b'#'.hash(&mut hasher);
            }
            (number, blank) = (true, false);
        } else if number && byte.is_ascii_hexdigit() {
            // Within a hexadecimal word.
        } else if byte.is_ascii_whitespace() {
            if !blank {
                b' '.hash(&mut hasher);
            }
            (number, blank) = (false, true);
        } else {
            byte.hash(&mut hasher);
            (number, blank) = (false, false);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(line: &str) -> u8 {
        grade(line.as_bytes()).map_or(0, |grade| grade.weight)
    }

    #[test]
    fn the_tables_are_valid_patterns() {
        assert!(GRADES.is_some() && QUIET.is_some() && HINT.is_some());
    }

    #[test]
    fn causes_weigh_more_than_summaries_and_these_more_than_noise() {
        for cause in [
            "error[E0308]: mismatched types",
            "thread 'main' panicked at src/main.rs:2:5:",
            "src/a.c:3:5: error: expected ';' before 'return'",
            "src/app.ts(3,7): error TS2322: Type 'string' is not assignable to type 'number'.",
            "main.o: in function `main': undefined reference to `frob'",
            "ValueError: invalid literal for int() with base 10: 'x'",
            "django.core.exceptions.FieldError: no",
            "E       assert 3 == 4",
            "fatal: not a git repository (or any of the parent directories): .git",
            "TypeError: Cannot read properties of undefined (reading 'x')",
            "Caused by: java.lang.NullPointerException: x",
        ] {
            assert_eq!(weight(cause), 9, "{cause}");
        }
        for summary in ["test result: FAILED. 3 passed; 1 failed", "make: *** [Makefile:4: all] Error 1", "FAILED (failures=1, errors=2)"] {
            assert_eq!(weight(summary), 5, "{summary}");
        }
        for word in ["bash: line 3: frob: command not found", "cat: x: No such file or directory", "cp: cannot create: Permission denied"] {
            assert_eq!(weight(word), 7, "{word}");
        }
        for noise in [
            "0 errors, 0 warnings",
            "test error_is_shown ... ok",
            "   Compiling thiserror v2.0.0",
            "gcc -Wall -Werror -c -o error.o error.c",
            "ok 12 - fails on a bad path",
            "all is well",
            "",
        ] {
            assert_eq!(weight(noise), 0, "{noise}");
        }
    }

    #[test]
    fn whatever_has_a_weight_has_a_hint() {
        for line in [
            "error[E0308]: x",
            "E       assert 1",
            "not ok 3 - x",
            "  ✕ adds (3 ms)",
            "  --> src/a.rs:1:2",
            "make: *** [x] Error 2",
            "--- FAIL: TestX (0.00s)",
            "  left: 3",
            "Traceback (most recent call last):",
            "Killed",
            "Segmentation fault (core dumped)",
            "a: patch does not apply",
            "CONFLICT (content): Merge conflict in a",
            "java.lang.StackOverflowError",
            "x.js:1 stack overflow",
            "KeyboardInterrupt",
            "SystemExit: 3",
            "ninja: build stopped",
            "a_test.go:12: bad",
            "Bus error",
            "Illegal instruction",
            "# fail 3",
        ] {
            let block = format!("fine\n{line}\nfine\n");
            if weight(line) > 0 {
                assert!(hints(block.as_bytes()).next().is_some(), "{line}");
            }
        }
    }

    #[test]
    fn lines_that_differ_in_numbers_have_one_shape() {
        assert_eq!(shape(b"error at 0x7ffe12 line 12"), shape(b"error at 0x5a  line 7"));
        assert_ne!(shape(b"error: a"), shape(b"error: b"));
    }
}
