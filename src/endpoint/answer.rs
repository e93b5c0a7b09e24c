//! An answer of an endpoint, before it is written.

use serde_json::{Value, json};

/// The type of nearly all answers, in APISIX also of those that are none.
const JSON: &str = "application/json";
/// The type of pages.
pub(crate) const HTML: &str = "text/html";

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// Whether it says which form of envelope it has, in the Admin API: `X-API-VERSION`.
    pub(crate) versioned: bool,
    /// Its type.
    pub(crate) kind: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// JSON text.
    pub(crate) fn json(status: u16, body: impl Into<String>) -> Answer {
        let mut body = body.into();
        body.push('\n');
        Answer::text(status, body)
    }

    /// A body as it is; the type says JSON all the same, as in APISIX.
    pub(crate) fn text(status: u16, body: impl Into<String>) -> Answer {
        Answer {
            status,
            body: body.into(),
            versioned: true,
            kind: JSON,
            headers: Vec::new(),
        }
    }

    /// What went wrong, in APISIX's form.
    pub(crate) fn error(status: u16, text: impl Into<Value>) -> Answer {
        Answer::json(status, json!({ "error_msg": text.into() }).to_string())
    }

    /// A request that cannot be carried out as it is.
    pub(crate) fn bad(text: impl Into<Value>) -> Answer {
        Answer::error(400, text)
    }

    /// Nothing is at this path. Clients tell it from other errors by the member's name.
    pub(crate) fn no_key() -> Answer {
        Answer::json(404, r#"{"message":"Key not found"}"#)
    }

    /// A page of nginx.
    pub(crate) fn page(status: u16) -> Answer {
        Answer {
            status,
            body: crate::proxy::fault::stock_page(status).unwrap_or_default(),
            versioned: false,
            kind: HTML,
            headers: Vec::new(),
        }
    }

    /// The same with another type.
    pub(crate) fn of_kind(mut self, kind: &'static str) -> Answer {
        self.kind = kind;
        self
    }

    /// The same without the header that names the form of envelopes.
    pub(crate) fn unversioned(mut self) -> Answer {
        self.versioned = false;
        self
    }
}
