//! Whose requests count together.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr};

use lockgate_limit::{Engine, Key, KeyHasher, Unclear, Wanted};
use lockgate_plugin::{Ctx, Lookup, Problems, Template, Var, VarSource, VarValue};
use rustc_hash::FxHashSet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// How `key` is read.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyType {
    /// The name of a variable.
    #[default]
    Var,
    /// A text with variables in it.
    VarCombination,
    /// A text that is the same for every request.
    Constant,
}

impl KeyType {
    fn name(self) -> &'static str {
        match self {
            KeyType::Var => "var",
            KeyType::VarCombination => "var_combination",
            KeyType::Constant => "constant",
        }
    }
}

/// In one piece, as documentation of a closed list.
impl JsonSchema for KeyType {
    fn schema_name() -> Cow<'static, str> {
        "KeyType".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": ["var", "var_combination", "constant"]})
    }
}

/// The same without `constant`.
pub(crate) fn var_or_combination(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["var", "var_combination"], "default": "var"})
}

/// Says which of the keys of `rules` are there twice: such rules would count in one counter.
pub(crate) fn check_rules<'a>(keys: impl Iterator<Item = &'a str>, out: &mut Problems) {
    let mut seen = FxHashSet::default();
    for key in keys {
        if !seen.insert(key) {
            out.add("", format!("duplicate key '{key}' in rules"));
        }
    }
}

/// Values for the variables of a template, in their order.
struct Given<'a> {
    values: &'a [String],
    next: Cell<usize>,
}

impl VarSource for Given<'_> {
    fn var<'b>(&'b self, _: &'b Var) -> Option<VarValue<'b>> {
        let at = self.next.replace(self.next.get() + 1);
        let value = self.values.get(at).filter(|value| !value.is_empty())?;
        Some(VarValue::Str(value.as_str().into()))
    }
}

/// A parsed key, within a scope of its own.
pub(crate) struct KeySource {
    scope: u64,
    kind: Kind,
    /// The bits of an IPv6 address that count.
    ipv6: u128,
}

enum Kind {
    /// The client's address, by far the most common; found without making a text of it.
    Address,
    Var(Var),
    Template(Template),
    Constant(Box<[u8]>),
}

impl KeySource {
    /// `owner` is what tells its counters from those of others. The text of the key belongs to it,
    /// so a key that is edited starts anew, and nothing else that is edited does.
    pub(crate) fn new(engine: &Engine, owner: &[&str], kind: KeyType, text: &str) -> KeySource {
        let mut parts = owner.to_vec();
        parts.extend([kind.name(), text]);
        let scope = engine.scope(&parts);
        let kind = match (kind, text) {
            (KeyType::Var, "remote_addr")
            | (KeyType::VarCombination, "$remote_addr" | "${remote_addr}") => Kind::Address,
            (KeyType::Var, name) => Kind::Var(Var::parse(name)),
            (KeyType::VarCombination, text) => Kind::Template(Template::parse(text)),
            (KeyType::Constant, text) => Kind::Constant(text.as_bytes().into()),
        };
        KeySource {
            scope,
            kind,
            ipv6: u128::MAX,
        }
    }

    /// Takes clients of one IPv6 network of this many bits for one.
    pub(crate) fn ipv6_prefix(mut self, bits: u8) -> KeySource {
        let other = u32::from(128_u8.saturating_sub(bits));
        self.ipv6 = u128::MAX.checked_shl(other).unwrap_or(0);
        self
    }

    /// The key of a request; `None` when nothing in it has a value.
    pub(crate) fn find(&self, engine: &Engine, cx: &Ctx<'_>) -> Option<Key> {
        self.find_in(engine, cx, &[])
    }

    /// The same, apart from requests for which `within` is different.
    pub(crate) fn find_in(&self, engine: &Engine, cx: &Ctx<'_>, within: &[&str]) -> Option<Key> {
        match &self.kind {
            Kind::Address => Some(self.address_in(engine, cx, within)),
            Kind::Var(var) => {
                let value = cx.var(var)?;
                let text = value.as_text();
                Some(self.begin(engine, within).bytes(text.as_bytes()).done())
            }
            Kind::Template(template) => {
                let mut key = self.begin(engine, within);
                let found = template.each_piece(&cx.lookup(), &mut |at, piece| {
                    key.add_at(at, piece.as_bytes());
                });
                (found > 0).then(|| key.done())
            }
            Kind::Constant(text) => Some(self.begin(engine, within).bytes(text).done()),
        }
    }

    /// The key as text, for a store that several gateways share. Of several variables no two requests have
    /// the same text unless all their values are: `a|b`, with `%` for one that has none.
    pub(crate) fn text(&self, cx: &Ctx<'_>) -> Option<String> {
        match &self.kind {
            Kind::Template(template) if template.has_several_vars() => {
                Joined::of(template, &cx.lookup())
            }
            _ => self.shown(cx),
        }
    }

    /// The same; the client's address when nothing has a value. Never the key of a client that
    /// sends an address as the value.
    pub(crate) fn find_or_address(&self, engine: &Engine, cx: &Ctx<'_>) -> Key {
        self.find(engine, cx)
            .unwrap_or_else(|| self.address_in(engine, cx, &[]))
    }

    /// The key that somebody names, as [`Self::find_in`] finds it for a request.
    ///
    /// # Errors
    /// When it is not clear which is meant.
    pub(crate) fn named(
        &self,
        engine: &Engine,
        wanted: &Wanted,
        within: &[&str],
    ) -> Result<Key, Unclear> {
        let begun = self.begin(engine, within);
        if let Some(address) = wanted.address {
            return Ok(begun.address(self.network(address)).done());
        }
        let values = wanted.values.as_slice();
        let one = || match values {
            [value] => Ok(value),
            _ => Err(Unclear::Values {
                wanted: 1,
                given: values.len(),
            }),
        };
        match &self.kind {
            Kind::Address => {
                let value = one()?;
                let address = value.parse().map_err(|_| Unclear::Address(value.clone()))?;
                Ok(begun.address(self.network(address)).done())
            }
            Kind::Var(_) => Ok(begun.bytes(one()?.as_bytes()).done()),
            Kind::Template(template) => {
                let given = Given {
                    values,
                    next: Cell::new(0),
                };
                let mut key = begun;
                let found =
                    template.each_piece(&given, &mut |at, piece| key.add_at(at, piece.as_bytes()));
                let wanted = given.next.get();
                match found {
                    _ if wanted != values.len() => Err(Unclear::Values {
                        wanted,
                        given: values.len(),
                    }),
                    0 => Err(Unclear::Empty),
                    _ => Ok(key.done()),
                }
            }
            Kind::Constant(text) => Ok(begun.bytes(text).done()),
        }
    }

    /// The key that somebody names as [`Self::text`] has it for a request, and whether it is an address
    /// for want of a value.
    ///
    /// # Errors
    /// When it is not clear which is meant.
    pub(crate) fn named_text(&self, wanted: &Wanted) -> Result<(String, bool), Unclear> {
        if let Some(address) = wanted.address {
            return Ok((self.network(address).to_string(), true));
        }
        let values = wanted.values.as_slice();
        let unfit = |wanted| Unclear::Values {
            wanted,
            given: values.len(),
        };
        let given = Given {
            values,
            next: Cell::new(0),
        };
        let text = match &self.kind {
            Kind::Address => {
                let [value] = values else {
                    return Err(unfit(1));
                };
                let address = value.parse().map_err(|_| Unclear::Address(value.clone()))?;
                Some(self.network(address).to_string())
            }
            Kind::Var(_) => match values {
                [value] => Some(value.clone()),
                _ => return Err(unfit(1)),
            },
            Kind::Template(template) => {
                let text = if template.has_several_vars() {
                    Joined::of(template, &given)
                } else {
                    let (text, found) = template.render_counted(&given);
                    (found > 0).then_some(text)
                };
                match given.next.get() {
                    wanted if wanted != values.len() => return Err(unfit(wanted)),
                    _ => text,
                }
            }
            Kind::Constant(text) => Some(String::from_utf8_lossy(text).into_owned()),
        };
        text.map(|text| (text, false)).ok_or(Unclear::Empty)
    }

    /// The client's address as the key.
    pub(crate) fn address_in(&self, engine: &Engine, cx: &Ctx<'_>, within: &[&str]) -> Key {
        self.begin(engine, within).address(self.address(cx)).done()
    }

    /// The client's address, or the network that it counts with.
    fn address(&self, cx: &Ctx<'_>) -> IpAddr {
        self.network(cx.client_ip())
    }

    fn network(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & self.ipv6)),
            v4 @ IpAddr::V4(_) => v4,
        }
    }

    /// The key of a request as logs tell it: the client's address when nothing has a value.
    pub(crate) fn shown_in(&self, request: &Lookup<'_>) -> String {
        let address = || self.network(request.work.client.ip()).to_string();
        match &self.kind {
            Kind::Address => address(),
            Kind::Constant(text) => String::from_utf8_lossy(text).into_owned(),
            Kind::Var(var) => match request.into_var(var) {
                Some(value) => value.as_text().into_owned(),
                None => address(),
            },
            Kind::Template(template) => match template.render_counted(request) {
                (text, found) if found > 0 => text,
                _ => address(),
            },
        }
    }

    /// The key of a request as people read it; `None` when nothing in it has a value.
    pub(crate) fn shown(&self, cx: &Ctx<'_>) -> Option<String> {
        match &self.kind {
            Kind::Address => Some(self.address(cx).to_string()),
            Kind::Var(var) => Some(cx.var(var)?.as_text().into_owned()),
            Kind::Template(template) => {
                let mut text = String::new();
                let found = template.each_piece(&cx.lookup(), &mut |_, piece| text.push_str(piece));
                (found > 0).then_some(text)
            }
            Kind::Constant(text) => Some(String::from_utf8_lossy(text).into_owned()),
        }
    }

    /// The same; the client's address when nothing has a value, as in [`Self::find_or_address`].
    pub(crate) fn shown_or_address(&self, cx: &Ctx<'_>) -> String {
        self.shown(cx)
            .unwrap_or_else(|| format!("{} (its variables have no value)", self.address(cx)))
    }

    /// The client's address as text, as far as it counts.
    pub(crate) fn address_text(&self, cx: &Ctx<'_>) -> String {
        self.address(cx).to_string()
    }

    fn begin(&self, engine: &Engine, within: &[&str]) -> KeyHasher {
        let mut key = engine.key(self.scope);
        within.iter().for_each(|part| key.add(part.as_bytes()));
        key
    }

    pub(crate) fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        match &self.kind {
            Kind::Address | Kind::Constant(_) => false,
            Kind::Var(var) => is(var),
            Kind::Template(template) => template.any_var(is),
        }
    }
}

/// Pieces of a key at their places, put together so that they can be told apart.
#[derive(Default)]
struct Joined {
    text: String,
    places: usize,
}

impl Joined {
    fn of(template: &Template, source: &dyn VarSource) -> Option<String> {
        let mut joined = Joined::default();
        let found = template.each_piece(source, &mut |at, piece| joined.add(at, piece));
        (found > 0).then_some(joined.text)
    }

    fn add(&mut self, at: usize, piece: &str) {
        while self.places < at {
            self.text.push_str("%|");
            self.places += 1;
        }
        for c in piece.chars() {
            match c {
                '%' => self.text.push_str("%25"),
                '|' => self.text.push_str("%7C"),
                c => self.text.push(c),
            }
        }
        self.text.push('|');
        self.places = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::request;

    #[test]
    fn keys_of_several_variables_are_never_mixed_up() {
        let text = |key: &str, args: &str| {
            let run = request().get(&format!("/?{args}"));
            Joined::of(&Template::parse(key), &run.lookup())
        };
        let two = "$arg_a$arg_b";
        let check = |a: &str, b: &str| assert_ne!(text(two, a), text(two, b), "{a} {b}");
        check("a=xy&b=z", "a=x&b=yz");
        check("a=x", "b=x");
        check("a=x", "a=x&b=");
        check("a=x%7C&b=y", "a=x&b=%7Cy");
        check("a=%25&b=y", "b=y");
        check("a=%257C", "a=%7C");
        assert_eq!(text(two, "a=x&b=y").as_deref(), Some("x|y|"));
        assert_eq!(text(two, "c=x"), None);
        assert_eq!(text("$arg_a $arg_b", "b=y").as_deref(), Some("%| |y|"));
    }
}
