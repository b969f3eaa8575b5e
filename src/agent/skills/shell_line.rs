//! The line by which the shell runs a script of a skill. Every word of it that is not ours is quoted.

use crate::envelope::{Fault, FaultCode};
use crate::skills::folder::Script;
use crate::workspace::escape;
use std::path::Path;

/// Programs for scripts that cannot be executed as they are, by the ending of their names.
const INTERPRETERS: &[(&str, &str)] = &[
    ("sh", "bash"),
    ("bash", "bash"),
    ("py", "python3"),
    ("js", "node"),
    ("mjs", "node"),
    ("cjs", "node"),
    ("rb", "ruby"),
    ("pl", "perl"),
    ("php", "php"),
    ("lua", "lua"),
    ("r", "Rscript"),
];

/// A line for the shell that runs a script with the base as its current folder and leaves the shell as it was.
pub(super) fn compose(base: &Path, folder: &Path, script: &Script, args: &[String]) -> Result<String, Fault> {
    let name = escape::name(&script.path);
    let path = folder.join(&name);
    let quoted = |path: &Path| quote(path.to_str().unwrap_or_default());
    if path.to_str().is_none() || base.to_str().is_none() {
        return Err(Fault::new(FaultCode::CommandNotStarted, format!("{}: its path is not UTF-8", script.path)));
    }
    if args.iter().any(|arg| arg.contains('\0')) {
        return Err(Fault::new(FaultCode::InvalidArguments, "an argument of a program holds no NUL character"));
    }
    let ending = Path::new(&name).extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let known = INTERPRETERS.iter().find(|(of, _)| *of == ending).map(|(_, program)| (*program).to_owned());
    let interpreter = match (script.executable && script.interpreter.is_some(), known, &script.interpreter) {
        (true, ..) => None,
        (false, Some(program), _) => Some(program),
        // The words of the first line, as the kernel would take them: a program and one argument.
        (false, None, Some(line)) => {
            let (program, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim();
            Some(if rest.is_empty() { quote(program) } else { format!("{} {}", quote(program), quote(rest)) })
        }
        (false, None, None) if script.executable => None,
        (false, None, None) => {
            return Err(Fault::new(
                FaultCode::CommandNotStarted,
                format!("{} is not executable, and nothing says what runs it", script.path),
            )
            .hint("a first line such as #!/usr/bin/env python3, or an ending such as .py or .sh, would"));
        }
    };
    let mut words = vec![format!("SKILL_DIR={}", quoted(folder)), "exec".into()];
    words.extend(interpreter);
    words.push(quoted(&path));
    words.extend(args.iter().map(|arg| quote(arg)));
    Ok(format!("( cd -- {} && {} )", quoted(base), words.join(" ")))
}

/// A word for the shell that means itself.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(path: &str, executable: bool, interpreter: Option<&str>) -> Script {
        Script { path: path.into(), executable, interpreter: interpreter.map(Into::into) }
    }

    #[test]
    fn a_script_is_run_as_its_ending_or_its_first_line_says() {
        let line = |script: &Script, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).into()).collect();
            compose(Path::new("/ws"), Path::new("/ws/it's"), script, &args)
        };
        let head = r"( cd -- '/ws' && SKILL_DIR='/ws/it'\''s' exec ";
        for (script, says) in [
            (script("a.py", false, None), r"python3 '/ws/it'\''s/a.py' )"),
            (script("a.py", true, Some("/usr/bin/python3")), r"'/ws/it'\''s/a.py' )"),
            (script("a", false, Some("/usr/bin/env bash")), r"'/usr/bin/env' 'bash' '/ws/it'\''s/a' )"),
            (script("a", false, Some("/bin/x;id -a $(id)")), r"'/bin/x;id' '-a $(id)' '/ws/it'\''s/a' )"),
            (script("bin", true, None), r"'/ws/it'\''s/bin' )"),
            (script("A.SH", true, None), r"bash '/ws/it'\''s/A.SH' )"),
        ] {
            assert_eq!(line(&script, &[]).unwrap(), format!("{head}{says}"));
        }
        assert!(line(&script("a.sh", false, None), &["$(id)", "'", "-n"]).unwrap().ends_with(r"/a.sh' '$(id)' ''\''' '-n' )"));
        assert_eq!(line(&script("a.txt", false, None), &[]).unwrap_err().code(), FaultCode::CommandNotStarted);
        assert_eq!(line(&script("a.sh", false, None), &["\0"]).unwrap_err().code(), FaultCode::InvalidArguments);
    }
}
