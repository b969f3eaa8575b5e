//! The folder of a run: claimed before anything else is done, so that every way out from then on leaves a transcript, a result and a patch.
//!
//! Never takes over what another run left, never lies where the sandbox can write, and shows nothing that is masked.

use super::show::{Console, seen};
use super::{print_fault, say_fault};
use crate::agent::finish::replace;
use crate::agent::mask::Mask;
use crate::agent::observe::Observer;
use crate::agent::outcome::{Outcome, RunResult};
use crate::agent::transcript::{Event, Transcript, What, load};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// The folder, and how far the run has come with it.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    held: Held,
    /// The model, as far as it is known.
    model: String,
    /// Whether the folder was made for this run.
    made: bool,
}

#[derive(Debug)]
enum Held {
    /// A run that begins here.
    New {
        transcript: Transcript,
        /// Whether a person named the folder.
        named: bool,
    },
    /// A run that is gone on with; its transcript is not touched before it is clear that it can be.
    Earlier,
    /// A run that goes on.
    Resumed(Transcript),
}

impl RunFolder {
    /// A folder for a new run: the one that is named, else one below the state folder.
    ///
    /// # Errors
    /// `invalid_arguments` where the sandbox could write there, or a run left something; `io_error`.
    pub(super) fn claimed(named: Option<&Path>, base: &Path) -> Result<Self, Fault> {
        let made = named.is_none_or(|folder| folder.symlink_metadata().is_err());
        let path = match named {
            Some(folder) => outside(folder, base)?,
            None => outside(&state_folder()?.join(format!("{}-{}", now_ms(), random_word()?)), base)?,
        };
        let run_id = format!("run-{}", random_word()?);
        let transcript =
            Transcript::create(&path.join("transcript.jsonl"), &run_id, Mask::default()).map_err(|fault| match fault.code() {
                FaultCode::AlreadyExists => {
                    Fault::new(FaultCode::InvalidArguments, format!("--out {}: a run has left its transcript there", path.display()))
                        .hint("--resume DIR goes on with that run; --out DIR names another folder for this one")
                }
                _ => fault.hint("--out DIR names another folder"),
            })?;
        let _ = std::fs::remove_file(path.join("result.json"));
        Ok(Self { path, held: Held::New { transcript, named: named.is_some() }, model: String::new(), made })
    }

    /// The folder of a run that is gone on with: it, or its transcript, is named. `copy`: the run is to work in a copy.
    ///
    /// # Errors
    /// `not_found`, `invalid_arguments` when no run began there, or one of another workspace, or when the sandbox could write there.
    pub(super) fn resumed(named: &Path, base: &Path, copy: bool) -> Result<Self, Fault> {
        let folder = if named.is_dir() { named.to_path_buf() } else { named.parent().unwrap_or(Path::new(".")).to_path_buf() };
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let transcript = folder.join("transcript.jsonl");
        if transcript.metadata().is_ok_and(|meta| !meta.is_file()) {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("{} is no regular file", transcript.display()))
                .hint("name the folder of a run: the one that was printed at its end, or given as --out"));
        }
        let (_, events) = events_of(if named.exists() { &folder } else { named })?;
        let begun = events.iter().find_map(|event| match &event.what {
            What::RunStarted { model, workspace, .. } => Some((model.clone(), workspace.clone())),
            _ => None,
        });
        let Some((model, workspace)) = begun else {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("{} holds no run that began", folder.display()))
                .hint("start the task anew"));
        };
        let path = outside(&folder, base)?;
        begun_here(&path, Path::new(&workspace), base, copy)?;
        Ok(Self { path, held: Held::Earlier, model, made: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The patch of the run.
    pub(super) fn patch_file(&self) -> PathBuf {
        self.path.join("changes.patch")
    }

    /// The model of the run that is gone on with.
    pub(super) fn model_before(&self) -> Option<&str> {
        matches!(self.held, Held::Earlier | Held::Resumed(_)).then_some(self.model.as_str())
    }

    /// Notes which model it is.
    pub(super) fn works_with(&mut self, model: String) {
        self.model = model;
    }

    /// The transcript to write to, in which these values never stand.
    ///
    /// # Errors
    /// As [`Transcript::resume`].
    pub(super) fn transcript(&mut self, secrets: Vec<String>) -> Result<&mut Transcript, Fault> {
        if matches!(self.held, Held::Earlier) {
            let (transcript, repair) = Transcript::resume(&self.path.join("transcript.jsonl"), Mask::default())?;
            if repair.cut_bytes > 0 || repair.unreadable > 0 {
                say!(
                    "bailiwick: the transcript was repaired: {} bytes of a torn last line were cut off, {} lines cannot be read",
                    repair.cut_bytes,
                    repair.unreadable
                );
            }
            // What an earlier process left would pass for this one's.
            let _ = std::fs::remove_file(self.path.join("result.json"));
            self.held = Held::Resumed(transcript);
        }
        match &mut self.held {
            Held::New { transcript, .. } | Held::Resumed(transcript) => {
                transcript.hide(secrets);
                Ok(transcript)
            }
            Held::Earlier => Err(Fault::new(FaultCode::Internal, "a transcript that was not opened")),
        }
    }

    /// Writes the result of a run that came to its end.
    ///
    /// # Errors
    /// `io_error`.
    pub(super) fn finished(&mut self, result: &RunResult) -> Result<(), Fault> {
        let file = self.path.join("result.json");
        let transcript = self.transcript(Vec::new())?;
        write_result(result, transcript.mask(), &file).inspect_err(|_| self.sweep())
    }

    /// Takes away what is there and holds nothing, when no more could be written.
    fn sweep(&self) {
        for name in ["transcript.jsonl", "changes.patch"] {
            let file = self.path.join(name);
            if file.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
                let _ = std::fs::remove_file(file);
            }
        }
        if self.made {
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// The end of a run that the model did not bring about: says it, and leaves what every run leaves. A mistake of the person's leaves
    /// nothing of a run that has not begun and has no folder of theirs, and takes nothing from one that is gone on with.
    pub(super) fn ended(mut self, outcome: &Outcome, secrets: Vec<String>, console: &Console) -> ExitCode {
        console.close();
        let code = outcome.exit_code();
        let mask = Mask::new(secrets.clone());
        match outcome {
            Outcome::Failed(fault) => print_fault(fault, &mask),
            other => say!("bailiwick: {}", seen(&mask.text(&other.message().unwrap_or_default()))),
        }
        let usage = code == ExitCode::Usage;
        match &self.held {
            Held::New { transcript, named: false } if usage && transcript.events().is_empty() => {
                let _ = std::fs::remove_file(self.path.join("transcript.jsonl"));
                let _ = std::fs::remove_dir(&self.path);
                return code;
            }
            Held::Earlier if usage => return code,
            _ => {}
        }
        if let Err(fault) = self.leave(outcome, secrets, console) {
            // That there is no room is said once.
            if !matches!(outcome, Outcome::Failed(before) if before.code() == fault.code()) {
                say_fault(&fault);
            }
            self.sweep();
        }
        code
    }

    fn leave(&mut self, outcome: &Outcome, secrets: Vec<String>, console: &Console) -> Result<(), Fault> {
        let (patch, file, model) = (self.patch_file(), self.path.join("result.json"), self.model.clone());
        let going_on = !matches!(self.held, Held::New { .. });
        let transcript = self.transcript(secrets)?;
        transcript.close_dangling()?;
        let mut result = ended_early(transcript, Some(model), outcome);
        // What an earlier process of this run changed stays in its patch.
        let there = (going_on && patch.exists()) || replace(&patch, b"").is_ok();
        if there {
            (result.patch, result.patch_error) = (Some(patch.display().to_string()), None);
        }
        if let Ok(result) = serde_json::to_value(&result)
            && let Ok(event) = transcript.append(What::RunEnded { result })
        {
            console.event(event);
        }
        write_result(&result, transcript.mask(), &file)?;
        say!("{}: {}", result.stop_reason, seen(&self.path.display().to_string()));
        Ok(())
    }
}

/// Whether a run can be gone on with here: its patch is one of the workspace that it began in.
fn begun_here(folder: &Path, workspace: &Path, base: &Path, copy: bool) -> Result<(), Fault> {
    let in_copy = workspace.starts_with(folder);
    let (says, hint) = match (in_copy, copy) {
        // Not known of older ones.
        _ if workspace.as_os_str().is_empty() => return Ok(()),
        (true, true) => return Ok(()),
        (true, false) => ("this run works in a copy of the workspace".into(), "add --workspace-mode copy".into()),
        (false, true) => ("this run works in the workspace itself".into(), "leave --workspace-mode copy out".into()),
        (false, false) if workspace == base => return Ok(()),
        (false, false) => (
            format!("this run works in {}, not in {}", workspace.display(), base.display()),
            format!("--workspace {}", workspace.display()),
        ),
    };
    Err(Fault::new(FaultCode::InvalidArguments, format!("--resume {}: {says}", folder.display())).hint(hint))
}

/// The events of a run that a person names by its folder or its transcript, and the transcript's place.
///
/// # Errors
/// `invalid_arguments` when no run left anything there, `io_error`.
pub(super) fn events_of(named: &Path) -> Result<(PathBuf, Vec<Event>), Fault> {
    let file = if named.is_dir() { named.join("transcript.jsonl") } else { named.to_path_buf() };
    let wrong = |says: &str| {
        Fault::new(FaultCode::InvalidArguments, format!("{}: {says}", named.display()))
            .hint("name the folder of a run: the one that was printed at its end, or given as --out")
    };
    let events = load(&file).map_err(|fault| match fault.code() {
        FaultCode::NotFound if named.is_dir() => wrong("no run has left its transcript there"),
        FaultCode::NotFound => wrong("there is no such file or folder"),
        _ => fault,
    })?;
    if events.is_empty() {
        return Err(wrong("it holds no event of a run"));
    }
    Ok((file, events))
}

/// The result of a process that ended before it asked the model anything. What earlier processes of the run spent and changed is theirs.
pub(super) fn ended_early(transcript: &Transcript, model: Option<String>, outcome: &Outcome) -> RunResult {
    let mut result = RunResult::before_start(transcript.run_id(), &model.unwrap_or_default(), outcome);
    for event in transcript.events() {
        match &event.what {
            What::RunStarted { model, enforcement, .. } => {
                result.model.clone_from(model);
                result.enforcement.clone_from(enforcement);
            }
            What::TurnStarted { turn } => result.turns = *turn,
            What::Replied { input_tokens, output_tokens, .. } | What::Summarized { input_tokens, output_tokens, .. } => {
                result.input_tokens = result.input_tokens.saturating_add(*input_tokens);
                result.output_tokens = result.output_tokens.saturating_add(*output_tokens);
            }
            What::RunEnded { result: before } => {
                if let Ok(before) = serde_json::from_value::<RunResult>(before.clone()) {
                    result.changed_files = before.changed_files;
                }
            }
            _ => {}
        }
    }
    result
}

/// Writes `result.json`, whole or not at all.
///
/// # Errors
/// `io_error`.
pub(super) fn write_result(result: &RunResult, mask: &Mask, path: &Path) -> Result<(), Fault> {
    let broken = |error: std::io::Error| {
        let hint = "make room there, or name another folder with --out DIR";
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                let folder = path.parent().unwrap_or(path).display();
                Fault::new(FaultCode::DiskFull, format!("{folder}: there is no room for what the run leaves")).hint(hint)
            }
            kind => Fault::new(FaultCode::IoError, format!("{}: {kind}", path.display())),
        }
    };
    let value = mask.value(serde_json::to_value(result).map_err(|error| broken(error.into()))?);
    let text = serde_json::to_vec_pretty(&value).map_err(|error| broken(error.into()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(broken)?;
    file.write_all(&text).map_err(broken)?;
    file.persist(path).map_err(|error| broken(error.error)).map(drop)
}

/// Makes a folder of ours, which must not lie where the sandbox can write.
fn outside(folder: &Path, base: &Path) -> Result<PathBuf, Fault> {
    let broken = |error: std::io::Error| {
        Fault::new(FaultCode::InvalidArguments, format!("the folder for what the run leaves, {}: {error}", folder.display()))
            .hint("--out DIR names another")
    };
    let judged = |real: PathBuf| match real.starts_with(base) {
        true => Err(Fault::new(FaultCode::InvalidArguments, format!("--out {} is inside the workspace", folder.display()))
            .hint("name a folder outside of it, where the model cannot write")),
        false => Ok(real),
    };
    // Before anything is made, where it will be; and once more when it is made.
    let to_be = judged(place_of(folder).map_err(broken)?)?;
    std::fs::create_dir_all(&to_be).map_err(broken)?;
    judged(to_be.canonicalize().map_err(broken)?)
}

/// Where a folder is, or will be when it is made: what is there of it is followed, and `..` leads back from what is not.
fn place_of(folder: &Path) -> std::io::Result<PathBuf> {
    // The folder that this was started in may be gone, which matters to nobody whose folder is elsewhere.
    let start = if folder.is_absolute() { Path::new("/") } else { Path::new(".") };
    let (mut real, mut missing) = (start.canonicalize()?, Vec::new());
    for part in folder.components() {
        match part {
            Component::Prefix(_) | Component::CurDir => {}
            Component::RootDir => real = "/".into(),
            Component::ParentDir => {
                if missing.pop().is_none() {
                    real.pop();
                }
            }
            Component::Normal(name) if missing.is_empty() => {
                let there = real.join(name);
                match there.canonicalize() {
                    Ok(found) => real = found,
                    // A link that leads nowhere is there, and nothing can be made in its place.
                    Err(error) if error.kind() == ErrorKind::NotFound && there.symlink_metadata().is_err() => missing.push(name),
                    Err(error) => return Err(error),
                }
            }
            Component::Normal(name) => missing.push(name),
        }
    }
    real.extend(missing);
    Ok(real)
}

/// Where runs leave what they leave.
///
/// # Errors
/// `io_error`: the folder among everybody's is somebody else's.
fn state_folder() -> Result<PathBuf, Fault> {
    let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")));
    let folder = match own {
        Some(state) => state.join("bailiwick"),
        None => among_all(&std::env::temp_dir())?,
    };
    Ok(folder.join("runs"))
}

/// The user's folder in one that is everybody's. Somebody else may have made it before, to change what is put there.
fn among_all(parent: &Path) -> Result<PathBuf, Fault> {
    let user = nix::unistd::geteuid();
    let folder = parent.join(format!("bailiwick-{user}"));
    let refused = |why: &str| {
        Fault::new(FaultCode::IoError, format!("the folder for what the run leaves, {}: {why}", folder.display()))
            .hint("HOME or XDG_STATE_HOME names a folder of one's own; --out DIR names one for this run")
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(&error.to_string())),
        _ => {}
    }
    let meta = folder.symlink_metadata().map_err(|error| refused(&error.to_string()))?;
    if !meta.is_dir() || meta.uid() != user.as_raw() || meta.mode() & 0o022 != 0 {
        return Err(refused("it is not a folder that is this user's alone"));
    }
    Ok(folder)
}

fn now_ms() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// Sixteen hexadecimal digits that nobody can guess.
pub(super) fn random_word() -> Result<String, Fault> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Fault::new(FaultCode::Internal, format!("no random bytes: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
