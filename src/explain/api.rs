//! Questions over HTTP, on whichever listener they come.

use super::{Asked, From, Rules, explain};
use crate::config::snapshot::Snapshot;
use crate::endpoint::Answer;

/// Where they are asked, by POST.
pub(crate) const PATH: &str = "/lockgate/v1/explain";

/// The answer to a question, which is JSON.
pub(crate) fn answer(snapshot: &Snapshot, rules: &Rules, body: &[u8]) -> Answer {
    let asked: Asked = match serde_json::from_slice(body) {
        Ok(asked) => asked,
        Err(error) => return Answer::bad(format!("invalid request body: {error}")).unversioned(),
    };
    let told = explain(snapshot, rules, &asked, From::Running);
    let answer = match told.map(|told| serde_json::to_string(&told)) {
        Ok(Ok(text)) => Answer::json(200, text),
        Ok(Err(error)) => Answer::error(500, error.to_string()),
        Err(error) => Answer::bad(error.to_string()),
    };
    answer.unversioned()
}
