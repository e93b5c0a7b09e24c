//! Plugins that find out who is calling.

pub mod key_auth;
