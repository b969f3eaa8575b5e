//! Tools beyond those of the session's registry: skills, and the tools of MCP servers.
//!
//! An [`Extra`] offers tools and answers calls of them; [`Extended`] is the doorway that has both. It never reaches past the session: what
//! an extra does to the world, it does through one.

use super::Doorway;
use super::prompt::Offered;
use crate::envelope::Fault;
use crate::session::{Call, OwnOutput, Session};
use crate::tools::special::Special;
use crate::tools::{Answer, AnyTool};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::Pin;

/// An answer that is being waited for. Dropping it ends what the call had started.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Answer> + 'a>>;

/// Further tools.
pub trait Extra {
    /// The tools, in the order in which a model sees them.
    fn offers(&self) -> Vec<Offered>;

    /// Answers a call of one of them; `None`: it is none of these.
    fn call<'a>(&'a self, call: &'a Call) -> Option<Answering<'a>>;

    /// Ends the programs that it has started: nothing further is asked of it.
    fn end<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(async {})
    }
}

/// A session with further tools.
pub struct Extended<'a> {
    /// The session.
    pub session: &'a Session,
    /// The further tools.
    pub extras: Vec<&'a dyn Extra>,
}

impl Extended<'_> {
    /// All tools that could be given to a model: the session's, then the further ones as far as the policy permits them.
    pub fn offers(&self) -> Vec<Offered> {
        let charter = self.session.charter();
        let further = self.extras.iter().flat_map(|extra| extra.offers());
        let further = further.filter(|offer| crate::session::is_on(&offer.declared.name, &offer.category, charter));
        self.session.tools().iter().map(|tool| Offered::of(*tool)).chain(further).collect()
    }
}

impl Doorway for Extended<'_> {
    async fn call(&self, call: Call) -> Answer {
        if let Some(answer) = self.extras.iter().find_map(|extra| extra.call(&call)) {
            return answer.await;
        }
        self.session.call(call).await
    }

    async fn own(&self, argv: Vec<OsString>, env: Vec<(OsString, OsString)>, stdin: Option<Vec<u8>>) -> Result<OwnOutput, Fault> {
        Doorway::own(self.session, argv, env, stdin).await
    }

    async fn special_files(&self) -> Special {
        self.session.special_files().await
    }

    async fn settle(&self) -> Vec<String> {
        // What runs on could change protected names after they have been compared.
        for extra in &self.extras {
            extra.end().await;
        }
        self.session.finish().await
    }

    fn keep_output(&self, text: &[u8]) -> Option<String> {
        self.session.keep_output(text)
    }

    fn tools(&self) -> &[&'static dyn AnyTool] {
        self.session.tools()
    }

    fn base(&self) -> &Path {
        Doorway::base(self.session)
    }

    fn own_dir(&self) -> PathBuf {
        self.session.own_dir()
    }
}
