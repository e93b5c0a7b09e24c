//! Why a condition does not hold, for people.

use serde::Serialize;

use super::{Case, Expr, Literal, Node, Op, Order};
use crate::var::VarSource;

/// Characters of a value that are shown.
const MOST_SHOWN: usize = 200;

/// One test that decided against a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unmet {
    /// The position inside the lists, such as `[0]`.
    pub at: String,
    /// What it asks for, such as `arg_x == 1`.
    pub condition: String,
    /// The value of the variable; `None` when it has none.
    pub found: Option<String>,
}

impl Expr {
    /// The tests that decided that the condition does not hold: the first that failed, of an `OR`
    /// all its members. Empty when the condition holds.
    pub fn unmet(&self, source: &dyn VarSource) -> Vec<Unmet> {
        let mut out = Vec::new();
        if !self.eval(source) {
            self.node.blame(true, String::new(), source, &mut out);
        }
        out
    }
}

impl Node {
    /// Adds the tests because of which this is not `wanted`.
    fn blame(&self, wanted: bool, at: String, source: &dyn VarSource, out: &mut Vec<Unmet>) {
        let (members, any) = match self {
            Node::All(members) => (members, false),
            Node::Any(members) => (members, true),
            Node::Not(node) => return node.blame(!wanted, at, source, out),
            Node::Test { var, op } => {
                let found = source.var(var);
                out.push(Unmet {
                    at,
                    condition: [var.name(), &op.asks(wanted)].concat(),
                    found: found.map(|value| shortened(&value.as_text())),
                });
                return;
            }
        };
        let nodes = (members.first..).zip(&members.nodes);
        let wrong = nodes.filter(|(_, node)| node.eval(source) != wanted);
        // One member is enough to spoil an AND, and to fulfil an OR that must not hold.
        let most = if any == wanted { usize::MAX } else { 1 };
        for (place, node) in wrong.take(most) {
            node.blame(wanted, format!("{at}[{place}]"), source, out);
        }
    }
}

impl Op {
    /// Operator and value, with a blank in front.
    fn asks(&self, wanted: bool) -> String {
        let (word, value) = match self {
            Op::Equal(literal) => {
                let word = if wanted { "==" } else { "~=" };
                return format!(" {word} {}", literal.shown());
            }
            Op::Never => (
                "compared",
                "with a value that it can never be compared with".into(),
            ),
            Op::Compare(order, limit) => (order.word(), limit.to_string()),
            Op::Matches(pattern, Case::Counts) => ("~~", pattern.text().to_owned()),
            Op::Matches(pattern, Case::Ignored) => ("~*", pattern.text().to_owned()),
            Op::In(list) => ("in", listed(list.iter().map(Literal::shown))),
            Op::Has(literal) => ("has", literal.shown()),
            Op::Ip(nets) => ("ipmatch", listed(nets.iter().map(ToString::to_string))),
        };
        let bang = if wanted { "" } else { "! " };
        format!(" {bang}{word} {}", shortened(&value))
    }
}

impl Order {
    fn word(self) -> &'static str {
        match self {
            Order::Greater => ">",
            Order::GreaterEq => ">=",
            Order::Less => "<",
            Order::LessEq => "<=",
        }
    }
}

impl Literal {
    fn shown(&self) -> String {
        match self {
            Literal::Nil => "null".to_owned(),
            Literal::Bool(value) => value.to_string(),
            Literal::Number(number) => number.to_string(),
            Literal::Text(text) if text.is_empty() => "\"\"".to_owned(),
            Literal::Text(text) => shortened(text),
            Literal::Table => "a table".to_owned(),
        }
    }
}

fn listed(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// The beginning of a long text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
