//! What a run has besides the session's tools: skills. From flags and folders to what the agent is given.

use super::setup::Setup;
use crate::agent::extra::{Extended, Extra};
use crate::agent::prompt::{SessionOptions, Switch, Toolset};
use crate::agent::skills::{Search, Skills};
use crate::envelope::{Fault, FaultCode};
use crate::policy::Charter;
use crate::policy::file::Trust;
use crate::policy::skill_homes::{self, Home};
use crate::session::Session;

/// The most sentences that are said about skills at the start.
const MOST_NOTES: usize = 20;

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Extras {
    /// Use this skill and no others that are not named; without it the run does not start (repeat for several)
    #[arg(long = "skill", value_name = "NAME", conflicts_with = "no_skills")]
    skills: Vec<String>,
    /// Use no skills
    #[arg(long)]
    no_skills: bool,
}

/// What was found before the session starts: the charter has to grant it.
pub(super) struct Prepared {
    homes: Vec<Home>,
    notes: Vec<String>,
}

/// What a run has.
pub(super) struct Opened<'a> {
    session: &'a Session,
    skills: Option<Skills<'a>>,
}

impl Extras {
    /// Nothing at all, for the demonstration.
    pub(super) fn none() -> Self {
        Self { no_skills: true, ..Self::default() }
    }

    /// Finds the person's skills and has the charter grant them.
    pub(super) fn prepare(&self, setup: &Setup, charter: &mut Charter) -> Prepared {
        let mut dropped = Vec::new();
        let homes = match self.no_skills {
            true => Vec::new(),
            false => skill_homes::grant(charter, setup.here(), setup.details().trust(), &mut dropped),
        };
        Prepared { homes, notes: dropped.into_iter().map(|dropped| format!("{}: {}", dropped.what, dropped.why)).collect() }
    }

    /// Opens it in a session. What there is to say is said on standard error.
    ///
    /// # Errors
    /// `missing_requirement`, and what keeps the session from looking.
    pub(super) async fn open<'a>(&self, session: &'a Session, setup: &Setup, prepared: Prepared) -> Result<Opened<'a>, Fault> {
        let Prepared { homes, mut notes } = prepared;
        let mut opened = Opened { session, skills: None };
        let trusted = setup.details().trust() == Trust::Own;
        if !self.no_skills {
            let Search { mut skills, notes: found } = Skills::find(session, trusted, homes).await?;
            notes.extend(found);
            if !self.skills.is_empty() {
                let missing = skills.keep(&self.skills);
                if !missing.is_empty() {
                    say(&notes);
                    let mut fault = Fault::new(FaultCode::MissingRequirement, format!("there is no skill {}", missing.join(", ")));
                    if !trusted {
                        fault = fault.hint("the tree is not trusted, so its own skills are not loaded");
                    }
                    return Err(fault);
                }
            }
            opened.skills = Some(skills);
        }
        say(&notes);
        Ok(opened)
    }
}

impl<'a> Opened<'a> {
    /// The session with all that there is besides.
    pub(super) fn doorway(&'a self) -> Extended<'a> {
        let skills = self.skills.iter().map(|skills| skills as &dyn Extra);
        Extended { session: self.session, extras: skills.collect() }
    }

    /// Switches on what is there.
    pub(super) fn switch_on(&self, options: &mut SessionOptions) {
        if self.skills.is_some() {
            options.on.insert(Switch::Skill);
        }
    }

    /// Adds what the system text says of it.
    pub(super) fn tell(&self, toolset: &mut Toolset) {
        let can_load = toolset.find("load_skill").is_some();
        let text = self.skills.as_ref().map(|skills| skills.prompt(can_load)).unwrap_or_default();
        if !text.is_empty() {
            if !toolset.instructions.is_empty() {
                toolset.instructions.push_str("\n\n");
            }
            toolset.instructions.push_str(&text);
        }
    }
}

fn say(notes: &[String]) {
    for note in notes.iter().take(MOST_NOTES) {
        anstream::eprintln!("bailiwick: {note}");
    }
    if notes.len() > MOST_NOTES {
        anstream::eprintln!("bailiwick: and {} more", notes.len() - MOST_NOTES);
    }
}
