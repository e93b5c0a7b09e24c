//! `${NAME}` in a file of ADC: the environment of whoever sends it, put into texts after the file was
//! read. `\${NAME}` stands for itself, and so does what is no plain name, such as `${http_x.y}`.
//!
//! ADC takes nothing for a variable that is not set; a key or an address that is empty is more likely
//! a mistake, so it is one here.

use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

/// Fills in every text below a place. What is not set is a problem.
pub(super) fn fill(
    value: &mut Value,
    place: &str,
    var: &dyn Fn(&str) -> Option<String>,
    out: &mut Problems,
) {
    match value {
        Value::String(text) if text.contains("${") => match filled(text, var) {
            Ok(filled) => *text = filled,
            Err(name) => out.push(
                Problem::new(place, format!("the environment has no `{name}`"))
                    .hint(format!("`\\${{{name}}}` stands for itself")),
            ),
        },
        Value::Array(list) => {
            for (at, item) in list.iter_mut().enumerate() {
                fill(item, &format!("{place}[{at}]"), var, out);
            }
        }
        Value::Object(map) => {
            for (name, item) in map {
                fill(item, &super::convert::join(place, name), var, out);
            }
        }
        _ => {}
    }
}

fn filled(text: &str, var: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = end
            .filter(|end| *end > 0 && after[*end..].starts_with('}'))
            .map(|end| &after[..end]);
        let Some(name) = name else {
            out.push_str(&rest[..start + 2]);
            rest = after;
            continue;
        };
        match before.strip_suffix('\\') {
            Some(before) => out.push_str(&format!("{before}${{{name}}}")),
            None => {
                out.push_str(before);
                out.push_str(&var(name).ok_or(name)?);
            }
        }
        rest = &after[name.len() + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_adc() {
        let var = |name: &str| (name == "KEY").then(|| "one".to_owned());
        let check = |text: &str, expected: Result<&str, &str>| {
            let got = filled(text, &var);
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(got, expected, "{text}");
        };
        check("${KEY}", Ok("one"));
        check("a${KEY}b${KEY}", Ok("aonebone"));
        check(r"\${KEY}", Ok("${KEY}"));
        check(r"a\${KEY}${KEY}", Ok("a${KEY}one"));
        check("${http_x.low}", Ok("${http_x.low}"));
        check("${", Ok("${"));
        check("${}", Ok("${}"));
        check("${KEY", Ok("${KEY"));
        check("$KEY ${{KEY}}", Ok("$KEY ${{KEY}}"));
        check("${NONE}", Err("NONE"));
    }
}
