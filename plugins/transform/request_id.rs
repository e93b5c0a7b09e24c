//! `request-id`: gives every request an id that the upstream, the client and the logs share.
//!
//! An id that the client sent is kept, so that one id follows a request through several gateways. A
//! format of the access log shows it as `$request_id`.
//!
//! ```yaml
//! plugins:
//!   request-id: { header_name: X-Request-Id, algorithm: uuidv7 }
//! ```

mod id;

use bytes::Bytes;
use lockgate_plugin::header::BadHeaderName;
use lockgate_plugin::{
    BuildCx, Ctx, HeaderKey, Outcome, Phases, Plugin, PluginError, Problem, Problems, Step,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::id::Maker;

/// The longest `range_id`: room for any sensible id, and far below the usual limit of 8 KiB for a
/// header line.
const MAX_RANGE_ID: u16 = 256;

/// The characters of `range_id` unless configured; APISIX's own set, with its double `G` for `J`.
const RANGE_ID_CHARS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIGKLMNOPQRSTUVWXYZ0123456789";

/// Configuration of `request-id`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Conf {
    /// The header that carries the id, in the request and in the response. A request that comes
    /// with this header (not empty) keeps its value.
    #[serde(default = "default_header_name")]
    #[schemars(length(min = 1))]
    header_name: String,
    /// Whether the response carries the id too. A header of that name from the upstream stays.
    #[serde(default = "yes")]
    include_in_response: bool,
    /// How an id is made. `uuid`: random UUID, version 4. `uuidv7`: UUID that starts with the time
    /// in milliseconds, so that ids sort by time. `nanoid`: 21 characters of `A-Za-z0-9_-`.
    /// `ksuid`: 27 characters of `0-9A-Za-z` that start with the time in seconds. `range_id`:
    /// see the attribute `range_id`.
    #[serde(default)]
    algorithm: Algorithm,
    /// The form of ids with `algorithm: range_id`.
    #[serde(default)]
    range_id: RangeId,
}

/// How an id is made.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Algorithm {
    #[default]
    Uuid,
    Nanoid,
    RangeId,
    Ksuid,
    Uuidv7,
}

/// Random characters out of a set.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct RangeId {
    /// How many characters an id has. Short ids repeat.
    #[serde(default = "default_length")]
    #[schemars(range(min = 6, max = 256))]
    length: u16,
    /// The characters to draw from: visible ASCII, at least 6. A character that is listed twice
    /// is drawn twice as often.
    #[serde(default = "default_char_set")]
    #[schemars(length(min = 6))]
    char_set: String,
}

impl Default for RangeId {
    fn default() -> RangeId {
        RangeId {
            length: default_length(),
            char_set: default_char_set(),
        }
    }
}

fn default_header_name() -> String {
    "X-Request-Id".to_owned()
}

fn default_length() -> u16 {
    16
}

fn default_char_set() -> String {
    RANGE_ID_CHARS.to_owned()
}

fn yes() -> bool {
    true
}

/// The plugin.
pub struct RequestId {
    header: HeaderKey,
    respond: bool,
    maker: Maker,
}

impl Plugin for RequestId {
    const NAME: &'static str = "request-id";
    const PRIORITY: i32 = 12015;
    const PHASES: Phases = Phases::REWRITE.and(Phases::HEADER_FILTER);
    type Conf = Conf;

    fn check(conf: &Conf, out: &mut Problems) {
        if let Err(e) = conf.header_name.parse::<HeaderKey>() {
            out.add("header_name", e.to_string());
        }
        let mut out = out.at("range_id");
        if !conf.range_id.char_set.bytes().all(|b| b.is_ascii_graphic()) {
            out.add(
                "char_set",
                "only visible ASCII characters can stand in a header",
            );
        }
        if conf.range_id.length > MAX_RANGE_ID {
            out.add("length", format!("must be at most {MAX_RANGE_ID}"));
        }
    }

    fn build(conf: Conf, _bx: &BuildCx<'_>) -> Result<RequestId, Problems> {
        let header = conf.header_name.parse();
        let header =
            header.map_err(|e: BadHeaderName| Problem::new("header_name", e.to_string()))?;
        let maker = match conf.algorithm {
            Algorithm::Uuid => Maker::Uuid,
            Algorithm::Uuidv7 => Maker::Uuidv7,
            Algorithm::Nanoid => Maker::Nanoid,
            Algorithm::Ksuid => Maker::Ksuid,
            Algorithm::RangeId => Maker::Range {
                chars: conf.range_id.char_set.into_bytes().into(),
                length: usize::from(conf.range_id.length),
            },
        };
        Ok(RequestId {
            header,
            respond: conf.include_in_response,
            maker,
        })
    }

    fn phases(&self) -> Phases {
        if self.respond {
            Self::PHASES
        } else {
            Phases::REWRITE
        }
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let id = match cx.header(&self.header) {
            Some(own) if !own.is_empty() => Bytes::copy_from_slice(own),
            _ => {
                let id = self.maker.make(cx.wall());
                cx.set_header(&self.header, id.clone());
                id
            }
        };
        cx.set_request_id(id);
        Ok(Step::Next)
    }

    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        if cx
            .resp_header(&self.header)
            .is_some_and(|value| !value.is_empty())
        {
            return Ok(());
        }
        // The header of the request, as another instance (of a global rule, say) may have made
        // the id that the logs show.
        let id = match (cx.header(&self.header), &cx.work().request_id) {
            (Some(sent), Some(id)) if sent == &id[..] => id.clone(),
            (Some(sent), _) if !sent.is_empty() => Bytes::copy_from_slice(sent),
            (_, Some(id)) => id.clone(),
            (_, None) => return Ok(()),
        };
        cx.set_resp_header(&self.header, id);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
