//! An answer of the Admin API, before it is written.

use serde_json::{Value, json};

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
    /// Whether it says which form of envelope it has: `X-API-VERSION`.
    pub(super) versioned: bool,
    pub(super) html: bool,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// JSON text.
    pub(super) fn json(status: u16, body: impl Into<String>) -> Answer {
        let mut body = body.into();
        body.push('\n');
        Answer::text(status, body)
    }

    /// A body as it is; the type says JSON all the same, as in APISIX.
    pub(super) fn text(status: u16, body: impl Into<String>) -> Answer {
        Answer {
            status,
            body: body.into(),
            versioned: true,
            html: false,
            headers: Vec::new(),
        }
    }

    /// What went wrong, in APISIX's form.
    pub(super) fn error(status: u16, text: impl Into<Value>) -> Answer {
        Answer::json(status, json!({ "error_msg": text.into() }).to_string())
    }

    /// A request that cannot be carried out as it is.
    pub(super) fn bad(text: impl Into<Value>) -> Answer {
        Answer::error(400, text)
    }

    /// Nothing is at this path. Clients tell it from other errors by the member's name.
    pub(super) fn no_key() -> Answer {
        Answer::json(404, r#"{"message":"Key not found"}"#)
    }

    /// A page of nginx.
    pub(super) fn page(status: u16) -> Answer {
        Answer {
            status,
            body: crate::proxy::fault::stock_page(status).unwrap_or_default(),
            versioned: false,
            html: true,
            headers: Vec::new(),
        }
    }

    /// The same without the header that names the form of envelopes.
    pub(super) fn unversioned(mut self) -> Answer {
        self.versioned = false;
        self
    }
}
