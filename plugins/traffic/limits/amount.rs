//! Numbers that a configuration gives, or that a variable has for each request.

use lockgate_plugin::{Problems, Template, Var, VarSource, var};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

/// Numbers in variables are exact up to here, as in the original.
const MOST_IN_TEXT: f64 = 9_007_199_254_740_991.0;

/// A number in a configuration: itself, or a text with variables in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Conf {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Conf {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Conf, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(serde_json::Number),
            Text(String),
        }
        Ok(match Raw::deserialize(from)? {
            // What does not fit is written as a fraction; the schema has seen that it is whole and
            // not negative. The cast ends at the largest number.
            Raw::Number(n) => Conf::Number(
                n.as_u64()
                    .unwrap_or_else(|| n.as_f64().unwrap_or(0.0) as u64),
            ),
            Raw::Text(text) => Conf::Text(text),
        })
    }
}

impl std::fmt::Display for Conf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Conf::Number(number) => number.fmt(f),
            Conf::Text(text) => text.fmt(f),
        }
    }
}

/// The schema of a number of at least 1, or a text.
pub(crate) fn positive(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"oneOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string"}]})
}

/// The schema of a number of at least 0, or a text.
pub(crate) fn natural(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]})
}

/// The same, ready for requests.
pub(crate) enum Amount {
    Fixed(u64),
    Template(Template),
}

/// A variable has no usable number: nil, not a number, negative, a fraction, or above 2^53.
pub(crate) struct Unusable;

impl Amount {
    /// `least` is 0 or 1. A text without variables has to be such a number.
    pub(crate) fn build(conf: &Conf, least: u64, field: &str, out: &mut Problems) -> Amount {
        match conf {
            Conf::Number(number) => Amount::Fixed(*number),
            Conf::Text(text) => {
                let template = Template::parse(text);
                if !template.is_constant() {
                    return Amount::Template(template);
                }
                let number = parse(text, least).unwrap_or_else(|Unusable| {
                    out.add(
                        field,
                        format!("`{text}` is neither a whole number of at least {least} nor has it a variable"),
                    );
                    least
                });
                Amount::Fixed(number)
            }
        }
    }

    /// The number for every request, if it is the same.
    pub(crate) fn fixed(&self) -> Option<u64> {
        match self {
            Amount::Fixed(number) => Some(*number),
            Amount::Template(_) => None,
        }
    }

    /// The number for a request.
    pub(crate) fn find(&self, source: &dyn VarSource, least: u64) -> Result<u64, Unusable> {
        match self {
            Amount::Fixed(number) => Ok(*number),
            Amount::Template(template) => parse(&template.render(source), least),
        }
    }

    pub(crate) fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        matches!(self, Amount::Template(template) if template.any_var(is))
    }
}

fn parse(text: &str, least: u64) -> Result<u64, Unusable> {
    let number = var::number(text).ok_or(Unusable)?;
    let usable = number >= least as f64 && number <= MOST_IN_TEXT && number.fract() == 0.0;
    usable.then_some(number as u64).ok_or(Unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::request;

    #[test]
    fn numbers_from_variables() {
        let check = |text: &str, least: u64, expected: Option<u64>| {
            let mut out = Problems::default();
            let conf = Conf::Text("${arg_n ?? 7}".to_owned());
            let amount = Amount::build(&conf, least, "n", &mut out);
            let run = request().get(&format!("/?{text}"));
            let got = amount.find(&run.lookup(), least);
            assert_eq!(got.ok(), expected, "{text}");
            assert!(out.is_empty());
        };
        check("n=5", 1, Some(5));
        check("", 1, Some(7));
        check("n=0", 1, None);
        check("n=0", 0, Some(0));
        check("n=-1", 0, None);
        check("n=1.5", 1, None);
        check("n=2.0", 1, Some(2));
        check("n=1e3", 1, Some(1_000));
        check("n=abc", 1, None);
        check("n=", 1, None);
        check("n=nan", 1, None);
        check("n=inf", 1, None);
        check("n=9007199254740991", 1, Some((1 << 53) - 1));
        check("n=9007199254740992", 1, None);
        check("n=1e300", 1, None);
    }

    #[test]
    fn numbers_in_configurations() {
        let check = |conf: &str, expected: Result<u64, &str>| {
            let conf: Conf = serde_json::from_str(conf).unwrap();
            let mut out = Problems::default();
            let amount = Amount::build(&conf, 1, "n", &mut out);
            let got = match out.into_result() {
                Ok(()) => Ok(amount.fixed().unwrap()),
                Err(out) => Err(out.to_string()),
            };
            assert_eq!(got, expected.map_err(str::to_owned), "{conf:?}");
        };
        check("5", Ok(5));
        check("\"5\"", Ok(5));
        check("9007199254740993", Ok(9_007_199_254_740_993));
        check("1e20", Ok(u64::MAX));
        let text = "n: `0` is neither a whole number of at least 1 nor has it a variable";
        check("\"0\"", Err(text));
    }
}
