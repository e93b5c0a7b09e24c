//! Variables that come from the request body: `request_body`, `post_arg_*`, `post_arg.*`,
//! `graphql_*`.
//!
//! | name | body | value |
//! |---|---|---|
//! | `post_arg_a` | urlencoded form | first value of the field |
//! | `post_arg.a.b` | JSON | the member, with its JSON type; a list of texts for an array |
//! | `post_arg.a[*].b`, `post_arg.a..b`, `post_arg.a[0]` | JSON | a list of all values found |
//! | `post_arg.a` | urlencoded or multipart form | first value of the field |
//! | `graphql_name`, `graphql_operation`, `graphql_root_fields` | GraphQL | of the first operation |
//!
//! A body is scanned, not turned into a tree: what is not asked for is skipped, so that a small
//! hostile body cannot fill the memory. Everything that does not parse has no value.

mod graphql;
mod json;
mod multipart;
mod path;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::LazyLock;

pub use self::path::Segment;
use crate::header::HeaderKey;
use crate::request::Work;
use crate::target::{ArgValue, arg, arg_value};
use crate::var::VarValue;
use crate::view::ReqView;

/// A variable that looks into the body.
#[derive(Clone, Debug)]
pub enum BodyVar {
    /// `request_body`
    Whole,
    /// `post_arg_NAME`: a field of a urlencoded form.
    Field(Box<str>),
    /// `post_arg.PATH`: by content type.
    Path(Box<[Segment]>),
    /// `graphql_name`
    GraphqlName,
    /// `graphql_operation`
    GraphqlOperation,
    /// `graphql_root_fields`
    GraphqlRootFields,
}

impl BodyVar {
    /// The variable for a name, if it is one of these.
    pub fn parse(name: &str) -> Option<BodyVar> {
        Some(match name {
            "request_body" => BodyVar::Whole,
            "graphql_name" => BodyVar::GraphqlName,
            "graphql_operation" => BodyVar::GraphqlOperation,
            "graphql_root_fields" => BodyVar::GraphqlRootFields,
            _ => match name.strip_prefix("post_arg.") {
                Some(path) => BodyVar::Path(path::parse(path)?.into()),
                None => BodyVar::Field(name.strip_prefix("post_arg_")?.into()),
            },
        })
    }
}

/// The value of a body variable. Nil when the body was not read, is of another type, or does not
/// parse.
pub(crate) fn value<'a>(var: &BodyVar, req: &dyn ReqView, work: &'a Work) -> Option<VarValue<'a>> {
    match var {
        BodyVar::Whole => VarValue::bytes(work.body.as_ref()?),
        BodyVar::Field(name) => {
            let form = has_prefix(content_type(req), b"application/x-www-form-urlencoded");
            let body = work.body.as_ref().filter(|_| form)?;
            field(std::str::from_utf8(body).ok()?, name)
        }
        BodyVar::Path(path) => by_path(path, content_type(req), work.body.as_ref()?),
        BodyVar::GraphqlName | BodyVar::GraphqlOperation | BodyVar::GraphqlRootFields => {
            let operation = graphql::first_operation(&graphql_document(req, work)?)?;
            match var {
                BodyVar::GraphqlName => VarValue::text(operation.name),
                BodyVar::GraphqlOperation => VarValue::text(operation.kind),
                _ => Some(VarValue::List(operation.root_fields)),
            }
        }
    }
}

fn graphql_document<'a>(req: &dyn ReqView, work: &'a Work) -> Option<Cow<'a, str>> {
    match req.method() {
        "GET" => {
            let args = work.target.args(req.target())?;
            Some(Cow::Owned(arg(args, "query")?.into_owned()))
        }
        "POST" if content_type(req) == b"application/json" => {
            match json::member(work.body.as_ref()?, "query")? {
                VarValue::Str(text) => Some(text),
                _ => None,
            }
        }
        "POST" => std::str::from_utf8(work.body.as_ref()?)
            .ok()
            .map(Cow::Borrowed),
        _ => None,
    }
}

fn by_path<'a>(path: &[Segment], kind: &[u8], body: &'a [u8]) -> Option<VarValue<'a>> {
    if contains(kind, b"application/json") {
        return json::by_path(body, path);
    }
    let [Segment::Name(name)] = path else {
        return None;
    };
    if contains(kind, b"application/x-www-form-urlencoded") {
        return field(std::str::from_utf8(body).ok()?, name);
    }
    if contains(kind, b"multipart/form-data") {
        return VarValue::bytes(multipart::field(body, kind, name)?);
    }
    None
}

fn field<'a>(form: &'a str, name: &str) -> Option<VarValue<'a>> {
    match arg_value(form, name)? {
        ArgValue::Flag => Some(VarValue::True),
        ArgValue::Text(text) => VarValue::text(text),
    }
}

fn content_type(req: &dyn ReqView) -> &[u8] {
    static NAME: LazyLock<HeaderKey> = LazyLock::new(|| HeaderKey::constant("content-type"));
    req.header(&NAME).unwrap_or_default().trim_ascii()
}

fn has_prefix(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

/// Whether a header value holds a word, in any case.
fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word))
}
