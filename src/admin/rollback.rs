//! What a rollback asks for, and what is told of it.

use lockgate_plugin::{Problem, Problems};
use serde_json::{Value, json};

use crate::changes::Want;
use crate::changes::history::{self, Generation, Stranger};
use crate::store::Listing;

/// What a rollback asks for.
pub(super) struct Rollback {
    pub(super) to: Option<u64>,
    undo: Option<u64>,
    pub(super) expected: Option<u64>,
    pub(super) comment: Option<String>,
}

impl Rollback {
    pub(super) fn read(body: &Value) -> Result<Rollback, Problems> {
        let Value::Object(map) = body else {
            return Err(Problem::new("", "expected an object with `to` or `undo`").into());
        };
        let mut out = Problems::default();
        for (name, value) in map {
            let fits = match name.as_str() {
                "to" | "undo" | "expected_revision" => value.is_u64(),
                "comment" => value.as_str().is_some_and(|text| text.len() <= 1000),
                _ => {
                    let text = format!("unknown key `{name}`");
                    let allowed = "allowed: to, undo, expected_revision, comment";
                    out.push(Problem::new(name.as_str(), text).hint(allowed));
                    continue;
                }
            };
            if !fits && !value.is_null() {
                out.add(name, "expected a revision, or a short text as the comment");
            }
        }
        let number = |name: &str| map.get(name).and_then(Value::as_u64);
        let rollback = Rollback {
            to: number("to"),
            undo: number("undo"),
            expected: number("expected_revision"),
            comment: map
                .get("comment")
                .and_then(Value::as_str)
                .map(str::to_owned),
        };
        if rollback.to.is_some() == rollback.undo.is_some() {
            out.add(
                "",
                "give `to`, the revision to go back to, or `undo`, the change to take back",
            );
        }
        out.into_result().map(|()| rollback)
    }

    /// What it is called in the history, and what it wants.
    pub(super) fn wants(
        &self,
        known: &[Generation],
        unrecorded: u64,
        listing: &Listing,
    ) -> Result<(String, Vec<Want>), Problems> {
        match (self.to, self.undo) {
            (Some(to), _) => {
                let wants = history::back_to(known, unrecorded, to, listing)?;
                Ok((format!("rollback to {to}"), wants))
            }
            (_, Some(undo)) => {
                let wants = history::undo(known, undo, listing)?;
                Ok((format!("undo {undo}"), wants))
            }
            (None, None) => Ok((String::new(), Vec::new())),
        }
    }

    /// Whether it takes a change back.
    pub(super) fn covers(&self, revision: u64) -> bool {
        self.to.is_some_and(|to| revision > to) || self.undo == Some(revision)
    }
}

/// Resources that are told one by one which are in no history.
const MOST_STRANGERS: usize = 200;

/// What others have put into the store, and what became of it.
pub(super) fn shown_strangers(strangers: &[Stranger]) -> Value {
    let list = |replaced: bool| -> Vec<Value> {
        let of = strangers.iter().filter(|s| s.replaced == replaced);
        let of = of.take(MOST_STRANGERS);
        of.map(|s| json!({ "resource": s.path, "revision": s.revision }))
            .collect()
    };
    json!({ "kept": list(false), "replaced": list(true), "in_all": strangers.len() })
}
