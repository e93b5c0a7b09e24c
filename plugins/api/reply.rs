//! An answer that the gateway makes itself.

use bytes::Bytes;
use serde_json::Value;

use crate::header::HeaderKey;

/// The body of a [`Reply`].
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// No body of the plugin's own: statuses that have a stock error page get that page.
    #[default]
    Stock,
    /// These bytes; may be empty.
    Bytes(Bytes),
}

/// An answer: status, body, headers. Header and body filters and the log phase still run.
///
/// ```
/// # use lockgate_plugin::Reply;
/// let reply = Reply::message(403, "Your IP address is not allowed");
/// assert_eq!(reply.status, 403);
/// ```
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code, 200 to 599.
    pub status: u16,
    /// The body.
    pub body: Body,
    /// Extra header fields; they replace the gateway's own of the same name.
    pub headers: Vec<(HeaderKey, Bytes)>,
    /// Why, for the log: a constant text such as `missing API key`. Clients never see it.
    pub reason: &'static str,
}

impl Reply {
    /// A status with the stock page where one exists, as a plugin answers that gives no body.
    pub fn status(status: u16) -> Reply {
        Reply {
            status,
            body: Body::Stock,
            headers: Vec::new(),
            reason: "",
        }
    }

    /// A status with a text body, sent as it is.
    pub fn text(status: u16, body: impl Into<Bytes>) -> Reply {
        Reply {
            body: Body::Bytes(body.into()),
            ..Reply::status(status)
        }
    }

    /// A status with a JSON body and a newline, as APISIX sends tables.
    pub fn json(status: u16, body: &Value) -> Reply {
        let mut text = body.to_string();
        text.push('\n');
        Reply::text(status, text)
    }

    /// `{"message": …}`: the form of authentication and restriction plugins.
    pub fn message(status: u16, message: &str) -> Reply {
        Reply::json(status, &serde_json::json!({ "message": message }))
    }

    /// `{"error_msg": …}`: the form of limits and blockers.
    pub fn error_msg(status: u16, message: &str) -> Reply {
        Reply::json(status, &serde_json::json!({ "error_msg": message }))
    }

    /// Adds a header field. Control bytes are escaped as in [`HeaderEdits`](crate::HeaderEdits).
    #[must_use]
    pub fn header(mut self, key: &HeaderKey, value: impl Into<Bytes>) -> Reply {
        self.headers
            .push((key.clone(), crate::edits::clean(value.into())));
        self
    }

    /// Says why, for the log.
    #[must_use]
    pub fn because(mut self, reason: &'static str) -> Reply {
        self.reason = reason;
        self
    }
}
