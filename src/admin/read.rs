//! GET of one item and of lists: filters, order, pages.

use std::borrow::Cow;

use lockgate_plugin::Pattern;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::Admin;
use super::access::Role;
use super::kinds::Target;
use super::private_keys::{CLIENT_KEY, without_client_keys, without_keys};
use super::request::{Request, parse_query};
use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;
use crate::endpoint::Answer;
use crate::store::{Item, StoreError};

/// How many items a page may have. Source: APISIX.
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 10..=500;

impl Admin {
    /// An item or a list.
    pub(super) async fn get(
        &self,
        target: &Target,
        request: &Request,
    ) -> Result<Answer, StoreError> {
        let Some(id) = &target.id else {
            return self.list(target, request).await;
        };
        let item = self.store.get(&target.path(id)).await?;
        Ok(match item {
            Some(item) => Answer::json(200, self.shown(request.role, target.kind, &item)),
            None => Answer::no_key(),
        })
    }

    async fn list(&self, target: &Target, request: &Request) -> Result<Answer, StoreError> {
        let page = match page(request) {
            Ok(page) => page,
            Err(answer) => return Ok(answer),
        };
        let mut items = self.store.list(&target.folder()).await?.items;
        if target.kind == Kind::Credential && items.is_empty() {
            // As in APISIX: there is no folder until something is in it.
            return Ok(Answer::no_key());
        }
        items.retain(|item| Key::from_path(&item.path).is_some_and(|key| key.kind == target.kind));
        let filter = Filter::new(target.kind, request);
        if filter.filters() {
            items
                .retain(|item| filter.takes(&serde_json::from_str(&item.text).unwrap_or_default()));
        }
        let total = items.len();
        if let Some((page, size)) = page {
            items.sort_by_key(|item| item.created);
            let skip = usize::try_from((page - 1).saturating_mul(size)).unwrap_or(usize::MAX);
            items = items.into_iter().skip(skip).take(size as usize).collect();
        }
        let list: Vec<String> = items
            .iter()
            .map(|item| self.shown(request.role, target.kind, item))
            .collect();
        let body = format!(r#"{{"total":{total},"list":[{}]}}"#, list.join(","));
        Ok(Answer::json(200, body))
    }

    /// An item in its envelope: what is encrypted is shown as it was sent, but a certificate's keys are
    /// not shown at all, and those that upstreams are talked to with not to viewers.
    fn shown(&self, role: Role, kind: Kind, item: &Item) -> String {
        let hidden = role == Role::Viewer && item.text.contains(CLIENT_KEY);
        let changed = kind == Kind::Ssl || hidden || !self.keyring.is_empty();
        let text = if changed {
            let mut value: Value = serde_json::from_str(&item.text).unwrap_or_default();
            if let Some(key) = Key::from_path(&item.path) {
                self.keyring.open(&key, &mut value);
            }
            if kind == Kind::Ssl {
                without_keys(&mut value);
            }
            if role == Role::Viewer {
                without_client_keys(&mut value);
            }
            Cow::Owned(value.to_string())
        } else if serde_json::from_str::<IgnoredAny>(&item.text).is_ok() {
            Cow::Borrowed(&*item.text)
        } else {
            // Written by somebody else: it must not spoil what is around it.
            Cow::Borrowed("null")
        };
        format!(
            r#"{{"key":{},"value":{text},"createdIndex":{},"modifiedIndex":{}}}"#,
            Value::from(format!("{}{}", self.store.prefix(), item.path)),
            item.created,
            item.modified
        )
    }
}

/// The page that is asked for, from 1, and its size. Both have to be numbers, else there is none.
fn page(request: &Request) -> Result<Option<(u64, u64)>, Answer> {
    let number = |name: &str| {
        let number = request.arg(name)?.trim().parse::<f64>().ok()?;
        number.is_finite().then_some(number.max(0.0) as u64)
    };
    let (Some(page), Some(size)) = (number("page"), number("page_size")) else {
        return Ok(None);
    };
    if !PAGE_SIZES.contains(&size) {
        let text = "page_size must be between 10 and 500";
        return Err(Answer::text(400, text));
    }
    Ok(Some((page.max(1), size)))
}

/// What a list is narrowed down by.
struct Filter {
    /// `None` inside when the expression is none: then nothing fits.
    name: Option<Option<Pattern>>,
    uri: Option<Option<Pattern>>,
    label: Option<String>,
    /// Members that have to be exactly this text.
    equal: Vec<(&'static str, String)>,
}

impl Filter {
    fn new(kind: Kind, request: &Request) -> Filter {
        let pattern = |name: &str| request.arg(name).map(|text| Pattern::new(text).ok());
        let filter = match kind {
            Kind::Route | Kind::StreamRoute => request.arg("filter"),
            _ => None,
        };
        let given = parse_query(filter.unwrap_or_default());
        let last = |name: &'static str| {
            let found = given.iter().rev().find(|(known, _)| known == name)?;
            Some((name, found.1.clone()))
        };
        Filter {
            name: pattern("name"),
            uri: pattern("uri"),
            label: request.arg("label").map(str::to_owned),
            equal: [last("service_id"), last("upstream_id")]
                .into_iter()
                .flatten()
                .collect(),
        }
    }

    fn filters(&self) -> bool {
        self.name.is_some() || self.uri.is_some() || self.label.is_some() || !self.equal.is_empty()
    }

    fn takes(&self, value: &Value) -> bool {
        let fits = |pattern: &Option<Pattern>, text: &str| {
            pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(text))
        };
        // What has no name counts as named `nil`, as in Lua.
        let name = value.get("name").and_then(Id::text);
        let name = name.as_deref().unwrap_or("nil");
        let own = value.get("uri").into_iter();
        let uris = own.chain(
            value
                .get("uris")
                .and_then(Value::as_array)
                .into_iter()
                .flatten(),
        );
        let mut uris = uris.filter_map(Value::as_str);
        let labels = value.get("labels");
        self.name.as_ref().is_none_or(|pattern| fits(pattern, name))
            && self
                .uri
                .as_ref()
                .is_none_or(|pattern| uris.any(|uri| fits(pattern, uri)))
            && self
                .label
                .as_ref()
                .is_none_or(|label| labels.is_some_and(|labels| labels.get(label).is_some()))
            && self.equal.iter().all(|(member, wanted)| {
                value.get(member).and_then(Value::as_str) == Some(wanted.as_str())
            })
    }
}
