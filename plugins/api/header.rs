//! Header names that are parsed once, at build time.

use std::fmt;

use bytes::Bytes;

/// A header name: compared without case, written as it was spelled.
///
/// Cloning costs at most a reference count.
///
/// ```
/// # use lockgate_plugin::HeaderKey;
/// let key: HeaderKey = "X-Request-Id".parse().unwrap();
/// assert_eq!(key.lower(), "x-request-id");
/// assert_eq!(key.spelled(), "X-Request-Id");
/// ```
#[derive(Clone)]
pub struct HeaderKey {
    name: http::HeaderName,
    /// As configured. Always ASCII: it passed the header name grammar.
    spelled: Bytes,
}

/// The name is empty, longer than 32 KiB, or holds a byte that no header name may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a header name: allowed are letters, digits and !#$%&'*+-.^_`|~")]
pub struct BadHeaderName;

impl HeaderKey {
    /// For names that are constants of the program. A bad one is a bug that the
    /// first use shows; it becomes `x-invalid` then rather than a panic.
    pub fn constant(spelled: &'static str) -> HeaderKey {
        match http::HeaderName::from_bytes(spelled.as_bytes()) {
            Ok(name) => HeaderKey {
                name,
                spelled: Bytes::from_static(spelled.as_bytes()),
            },
            Err(_) => {
                debug_assert!(false, "`{spelled}` is not a header name");
                HeaderKey {
                    name: http::HeaderName::from_static("x-invalid"),
                    spelled: Bytes::from_static(b"x-invalid"),
                }
            }
        }
    }

    /// Parses a name from a variable: `-` may be written as `_`, as in `$http_x_forwarded_for`.
    ///
    /// # Errors
    /// When the text is not a header name.
    pub fn from_var(text: &str) -> Result<HeaderKey, BadHeaderName> {
        text.replace('_', "-").parse()
    }

    /// The name in lower case.
    pub fn lower(&self) -> &str {
        self.name.as_str()
    }

    /// The name as it was written in the configuration.
    pub fn spelled(&self) -> &str {
        // Checked when it was made; the fallback keeps this total.
        std::str::from_utf8(&self.spelled).unwrap_or(self.name.as_str())
    }

    /// Whether `other` is this name, in any case.
    pub fn is(&self, other: &[u8]) -> bool {
        self.name.as_str().as_bytes().eq_ignore_ascii_case(other)
    }

    /// For the proxy's adaptors only: the parsed name.
    #[doc(hidden)]
    pub fn name(&self) -> &http::HeaderName {
        &self.name
    }

    /// For the proxy's adaptors only: the spelling, cheap to clone.
    #[doc(hidden)]
    pub fn spelled_bytes(&self) -> &Bytes {
        &self.spelled
    }
}

impl std::str::FromStr for HeaderKey {
    type Err = BadHeaderName;
    fn from_str(text: &str) -> Result<Self, BadHeaderName> {
        let name = http::HeaderName::from_bytes(text.as_bytes()).map_err(|_| BadHeaderName)?;
        Ok(HeaderKey {
            name,
            spelled: Bytes::copy_from_slice(text.as_bytes()),
        })
    }
}

impl PartialEq for HeaderKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for HeaderKey {}

impl std::hash::Hash for HeaderKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for HeaderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spelled())
    }
}

impl fmt::Display for HeaderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spelled())
    }
}
