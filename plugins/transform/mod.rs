//! Plugins that change requests and responses.

pub mod proxy_rewrite;
pub mod redirect;
mod regex_uri;
pub mod request_id;
pub mod response_rewrite;
