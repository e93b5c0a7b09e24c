//! The request target: one normal form of the path, computed once per request.
//!
//! Routes, plugins and the upstream must all mean the same path, or a rule for `/admin` can be
//! walked around with `/x/..%2Fadmin`. So the path is brought to its normal form when the head is
//! complete, everything decides on that form, and the client's spelling goes upstream only when
//! it cannot mean another path.
//!
//! | client sent | normal form (`uri`) | sent upstream | why |
//! | --- | --- | --- | --- |
//! | `/a/b?x=1` | `/a/b` | as sent | already normal: nothing is allocated |
//! | `/a%20b`, `/%C3%A9` | `/a b`, `/é` | as sent | plain percent-decoding |
//! | `/a%2Fb` | `/a/b` | as sent | an encoded slash matches as a slash; the upstream gets it encoded |
//! | `/a//b`, `/a/./b`, `/x/../a` | `/a/b`, `/a/b`, `/a` | the normal form, encoded again | structural: an upstream might read it differently |
//! | `/x/%2e%2e/a`, `/x%2F../a` | `/a` | the normal form, encoded again | decoding comes before dot segments |
//! | `/%FF` | `/%FF` | as sent | not UTF-8: stays encoded, in upper case, so that the form is text |
//! | `/a#b`, `/a?x#b` | `/a` | without the fragment | a fragment is not for servers |
//! | `/a?` | `/a`, no args | as sent | an empty query is no query |
//! | `/..`, `/a/../..` | [`BadTarget::AboveRoot`] | | |
//! | `/%`, `/%G1` | [`BadTarget::Escape`] | | |
//! | `/%00` | [`BadTarget::Nul`] | | |
//! | a space, control byte or DEL, unencoded | [`BadTarget::Control`] | | it could split the upstream's request line |
//! | `a`, `*`, empty | [`BadTarget::NotAbsolute`] | | |
//!
//! Every error is the client's: status 400. The rules are those of nginx, except that nginx sends
//! structural differences upstream as they came.
//!
//! ```
//! use lockgate_plugin::Target;
//! let raw = b"/shop/../admin%20area?tab=1";
//! let target = Target::parse(raw).unwrap();
//! assert_eq!(target.uri(raw), "/admin area");
//! assert_eq!(target.args(raw), Some("tab=1"));
//! assert_eq!(&*target.upstream_target(raw), b"/admin%20area?tab=1");
//! ```

mod authority;
mod normal;
mod query;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::Bytes;

pub use authority::host_of;
pub use query::{ArgValue, arg, arg_value};

/// The longest target that is looked at, in bytes. Above every sensible limit for a request head,
/// so that the head limit decides, and small enough for 32-bit offsets.
pub const MAX_TARGET: usize = 64 * 1024;

/// Why a request target is refused. The answer is always 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// It does not start with a slash.
    #[error("the request target does not start with `/`")]
    NotAbsolute,
    /// It is longer than [`MAX_TARGET`].
    #[error("the request target is longer than {MAX_TARGET} bytes")]
    TooLong,
    /// `%` is not followed by two hexadecimal digits.
    #[error("the path has a `%` without two hexadecimal digits")]
    Escape,
    /// `%00` in the path.
    #[error("the path has an encoded NUL")]
    Nul,
    /// A space, control byte or DEL that is not percent-encoded.
    #[error("the request target has a control byte or space")]
    Control,
    /// `..` leads above `/`.
    #[error("the path leads above the root")]
    AboveRoot,
    /// Servlet parameters hide a dot segment or an empty one, such as `/a/..;x/b`.
    #[error("the path has parameters on a dot segment or an empty segment")]
    Parameters,
}

/// How the path is prepared for matching; process-wide settings under `apisix`, all off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchOptions {
    /// `delete_uri_tail_slash`: one trailing slash is ignored. `/` itself stays.
    pub delete_tail_slash: bool,
    /// `normalize_uri_like_servlet`: `;parameters` of every segment are ignored.
    pub like_servlet: bool,
    /// `match_uri_encoded_slash`: `%2F` is matched as the text `%2F`, not as a slash, when the
    /// path needed nothing but decoding.
    pub encoded_slash: bool,
}

/// A parsed request target. It keeps offsets into the raw bytes and owns text only where the raw
/// bytes will not do, so every reading method takes the raw target again.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Length of the raw path.
    path_len: u32,
    /// Where the raw query starts; 0 when there is none.
    args_at: u32,
    /// End of the raw target without fragment.
    end: u32,
    /// The normal path differs from the raw one by more than decoding.
    structural: bool,
    /// The normal path has escapes of bytes that are not UTF-8.
    kept_escapes: bool,
    /// The normal path, where it differs from the raw one.
    normal: Option<Box<str>>,
    /// The query, where the raw one is not UTF-8.
    args: Option<Box<str>>,
    /// What plugins set instead.
    rewritten: Option<Box<Rewritten>>,
    /// What goes upstream, where it is not the raw target.
    sent: Option<Bytes>,
}

#[derive(Clone, Debug)]
struct Rewritten {
    path: Box<str>,
    args: Option<Box<str>>,
}

impl Target {
    /// Parses `path?query` (origin form; of an absolute form, pass what follows the authority).
    ///
    /// # Errors
    /// [`BadTarget`] as in the table above. Nothing is allocated when the path is already normal.
    pub fn parse(raw: &[u8]) -> Result<Target, BadTarget> {
        if raw.len() > MAX_TARGET {
            return Err(BadTarget::TooLong);
        }
        if raw.first() != Some(&b'/') {
            return Err(BadTarget::NotAbsolute);
        }
        let scan = normal::scan(raw)?;
        let mut target = Target {
            path_len: offset(scan.path_len),
            args_at: offset(scan.args_at),
            end: offset(scan.end),
            ..Target::default()
        };
        if scan.args_at != 0 && !scan.args_ascii {
            target.args = query::as_text(&raw[scan.args_at..scan.end]);
        }
        if scan.plain && std::str::from_utf8(&raw[..scan.path_len]).is_ok() {
            return Ok(target);
        }
        let form = normal::normalise(&raw[..scan.path_len])?;
        target.structural = form.structural;
        target.kept_escapes = form.kept_escapes;
        if form.structural {
            let mut sent = normal::encode(form.decoded.iter().copied());
            if scan.args_at != 0 {
                sent.extend_from_slice(&raw[scan.args_at - 1..scan.end]);
            }
            target.sent = Some(Bytes::from(sent));
        }
        target.normal = Some(form.into_text());
        Ok(target)
    }

    /// As [`parse`](Self::parse), with what is not part of the path by these options taken off it: plugins
    /// see the path that the route was found by, or a rule about `/admin/users` would let
    /// `/admin;x/users` pass. The upstream gets what the client sent.
    ///
    /// # Errors
    /// As of `parse`; [`BadTarget::Parameters`] with `like_servlet`.
    pub fn parse_as(raw: &[u8], options: &MatchOptions) -> Result<Target, BadTarget> {
        let mut target = Target::parse(raw)?;
        if options.like_servlet {
            let only = MatchOptions {
                like_servlet: true,
                ..MatchOptions::default()
            };
            let path = target.match_path(raw, &only)?;
            if let Cow::Owned(path) = path {
                target.structural = true;
                target.normal = Some(path.into());
            }
        }
        Ok(target)
    }

    /// The path: the one a plugin set, else the normal form. Decoded, starts with `/`.
    pub fn uri<'a>(&'a self, raw: &'a [u8]) -> &'a str {
        match &self.rewritten {
            Some(rewritten) => &rewritten.path,
            None => self.normal(raw),
        }
    }

    /// The query without `?`, undecoded: the one a plugin set, else the client's. `None` when
    /// there is none or it is empty.
    pub fn args<'a>(&'a self, raw: &'a [u8]) -> Option<&'a str> {
        match &self.rewritten {
            Some(rewritten) => rewritten.args.as_deref(),
            None => self.original_args(raw),
        }
    }

    /// The normal form of the client's path, `?`, and the client's query; edits do not show.
    pub fn request_uri<'a>(&'a self, raw: &'a [u8]) -> Cow<'a, str> {
        let path = self.normal(raw);
        let Some(args) = self.original_args(raw) else {
            return Cow::Borrowed(path);
        };
        if self.normal.is_none()
            && self.args.is_none()
            && let Some(Ok(all)) = raw.get(..self.end as usize).map(std::str::from_utf8)
        {
            return Cow::Borrowed(all);
        }
        Cow::Owned([path, "?", args].concat())
    }

    /// Records another path (decoded text) and query (already encoded, without `?`; `None` drops
    /// the query), and returns both as the target to send upstream.
    ///
    /// In the path everything is encoded that nginx encodes: space, `#`, `%`, `?`, control and
    /// non-ASCII bytes. A missing first `/` is added. In the query only what would break the
    /// request line is encoded: space, control bytes and `#`.
    pub fn rewrite(&mut self, path: &str, args: Option<&str>) -> Bytes {
        let path: Box<str> = if path.starts_with('/') {
            path.into()
        } else {
            ["/", path].concat().into()
        };
        let args = args.filter(|args| !args.is_empty());
        let mut sent = if self.kept_escapes {
            normal::encode_kept(path.as_bytes())
        } else {
            normal::encode(path.bytes())
        };
        if let Some(args) = args {
            sent.push(b'?');
            query::encode_into(args, &mut sent);
        }
        let sent = Bytes::from(sent);
        self.rewritten = Some(Box::new(Rewritten {
            path,
            args: args.map(Box::from),
        }));
        self.sent = Some(sent.clone());
        sent
    }

    /// What to send upstream: the raw target when it means the same path everywhere, else the
    /// normal form encoded again; after [`Target::rewrite`], what that returned.
    pub fn upstream_target<'a>(&'a self, raw: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.sent {
            Some(sent) => Cow::Borrowed(sent),
            None => Cow::Borrowed(raw.get(..self.end as usize).unwrap_or(raw)),
        }
    }

    /// The path that routes are matched against.
    ///
    /// # Errors
    /// [`BadTarget::Parameters`] with `like_servlet`.
    pub fn match_path<'a>(
        &'a self,
        raw: &'a [u8],
        options: &MatchOptions,
    ) -> Result<Cow<'a, str>, BadTarget> {
        let mut path = Cow::Borrowed(self.normal(raw));
        if options.encoded_slash
            && !self.structural
            && self.normal.is_some()
            && let Some(kept) = raw
                .get(..self.path_len as usize)
                .and_then(normal::keep_slashes)
        {
            path = Cow::Owned(kept);
        }
        if options.delete_tail_slash && path.len() > 1 && path.ends_with('/') {
            path = match path {
                Cow::Borrowed(path) => Cow::Borrowed(&path[..path.len() - 1]),
                Cow::Owned(mut path) => {
                    path.pop();
                    Cow::Owned(path)
                }
            };
        }
        // What is escaped twice would become a dot segment for whoever decodes once more.
        if options.like_servlet && path.split('/').any(normal::is_escaped_dots) {
            return Err(BadTarget::Parameters);
        }
        if options.like_servlet && path.contains(';') {
            path = Cow::Owned(normal::without_parameters(&path)?);
        }
        Ok(path)
    }

    fn normal<'a>(&'a self, raw: &'a [u8]) -> &'a str {
        if let Some(normal) = &self.normal {
            return normal;
        }
        let path = raw.get(..self.path_len as usize).map(std::str::from_utf8);
        // Empty only for `Target::default()`, which stands for the root.
        path.and_then(Result::ok)
            .filter(|path| !path.is_empty())
            .unwrap_or("/")
    }

    fn original_args<'a>(&'a self, raw: &'a [u8]) -> Option<&'a str> {
        if let Some(args) = &self.args {
            return Some(args);
        }
        if self.args_at == 0 {
            return None;
        }
        let args = raw.get(self.args_at as usize..self.end as usize)?;
        std::str::from_utf8(args)
            .ok()
            .filter(|args| !args.is_empty())
    }
}

/// Offsets stay below [`MAX_TARGET`].
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(0)
}
