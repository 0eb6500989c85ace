package orgfile

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/plan"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// printPlan prints the changes of a plan.
func printPlan(a *noun.App, p *comparison, markdown bool) error {
	format, err := a.Value("output")
	if err != nil {
		return err
	}
	switch {
	case format.Text == "json":
		return a.JSON(jsonPlan(p))
	case markdown:
		fmt.Fprint(a.Out, markdownPlan(p))
	case format.Text != "" && format.Text != "table":
		return problem.Usage("a plan cannot be printed with -o %s", format.Text).Hint("use -o json, --markdown, or neither")
	default:
		textPlan(a, p)
	}
	return nil
}

// signs are the characters before changes in text.
var signs = map[plan.Action]struct{ sign, color string }{
	plan.Create: {"+", output.Green}, plan.Update: {"~", output.Bold}, plan.Rename: {">", output.Bold},
	plan.Replace: {"!", output.Red}, plan.Delete: {"-", output.Red},
}

func textPlan(a *noun.App, p *comparison) {
	for _, c := range p.Changes {
		s := signs[c.Action]
		fmt.Fprintln(a.Out, a.Paint(s.color, s.sign+" "+title(c)))
		for _, f := range c.Fields {
			if c.Action != plan.Rename {
				fmt.Fprintln(a.Out, "    "+output.Printable(fieldLine(c, f)))
			}
		}
	}
	for _, line := range append(summary(p), consequences(p)...) {
		fmt.Fprintln(a.Out, output.Printable(line))
	}
}

// title describes a change on one line.
func title(c *plan.Change) string {
	text := c.Kind.One + " " + c.Label()
	if c.Action == plan.Rename {
		text = c.Kind.One + " " + c.Was + " is renamed to " + c.Wanted.Path()
	}
	if c.Action == plan.Replace {
		text += " (deleted and created again, because it cannot be changed)"
	}
	return output.Printable(text)
}

// fieldLine describes the change of a field. It never contains a secret, only where it is.
func fieldLine(c *plan.Change, f plan.FieldChange) string {
	if c.Action == plan.Create {
		return f.Name + ": " + model.Format(f.New)
	}
	if c.Kind.Field(f.Name).Secret {
		return f.Name + ": set again from " + model.Format(f.New)
	}
	return f.Name + ": " + model.Format(f.Old) + " -> " + model.Format(f.New)
}

// summary counts the changes, and says what the plan does not cover.
func summary(p *comparison) (lines []string) {
	var parts []string
	for _, c := range []struct {
		action plan.Action
		verb   string
	}{
		{plan.Create, "create"}, {plan.Update, "change"}, {plan.Rename, "rename"}, {plan.Replace, "replace"},
		{plan.Delete, "delete"},
	} {
		if n := p.Count(c.action); n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, c.verb))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing would change"}
	}
	lines = append(lines, strings.Join(parts, ", "))
	for _, k := range model.Kinds {
		if n := p.Unnamed[k.Name]; n > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d that the file does not name; --prune would delete them", k.Name, n))
		}
	}
	for _, k := range p.Unread {
		for _, u := range p.state.Unreadable {
			if u.Kind == k {
				lines = append(lines, fmt.Sprintf("%s: not compared, because you do not have %s on the group",
					k.Name, u.Capability))
			}
		}
	}
	return lines
}

// markdownPlan returns the plan for a comment of a pull request. Names are in code blocks,
// which they cannot leave.
func markdownPlan(p *comparison) string {
	var b strings.Builder
	lines := append(summary(p), consequences(p)...)
	fmt.Fprintf(&b, "### Holdfast plan for %s\n\n%s\n", code(p.state.Group), lines[0])
	for _, line := range lines[1:] {
		fmt.Fprintf(&b, "- %s\n", inText(line))
	}
	if len(p.Changes) == 0 {
		return b.String()
	}
	b.WriteString("\n```diff\n")
	for _, c := range p.Changes {
		sign := map[plan.Action]string{plan.Create: "+", plan.Delete: "-"}[c.Action]
		if sign == "" {
			sign = "!"
		}
		fmt.Fprintf(&b, "%s %s\n", sign, inBlock(title(c)))
		for _, f := range c.Fields {
			if c.Action != plan.Rename {
				fmt.Fprintf(&b, "%s     %s\n", sign, inBlock(fieldLine(c, f)))
			}
		}
		if b.Len() > maxMarkdown {
			b.WriteString("# the comment would be too long: there are more changes\n")
			break
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// maxMarkdown is the size after which a comment ends. GitHub allows 65536 characters.
const maxMarkdown = 60_000

// inBlock makes a text safe within a code block.
func inBlock(text string) string {
	return strings.ReplaceAll(output.Printable(text), "```", "'''")
}

// inText makes names in a sentence plain text, so that they cannot add links or mentions.
func inText(text string) string {
	return strings.NewReplacer("<", "&lt;", "&", "&amp;", "@", "&#64;", "`", "&#96;", "[", "\\[", "*", "\\*", "_", "\\_",
		"!", "\\!", "|", "\\|", "#", "&#35;").Replace(output.Printable(text))
}

func code(text string) string {
	return "`" + strings.ReplaceAll(output.Printable(text), "`", "'") + "`"
}

// A planJSON is the form of a plan for programs.
type planJSON struct {
	Group    string         `json:"group"`
	Changes  []changeJSON   `json:"changes"`
	Unnamed  map[string]int `json:"unnamed"`  // resources that the file does not name, by kind
	Unread   []string       `json:"unread"`   // kinds that were not compared
	Counters map[string]int `json:"counters"` // changes by action
	// Consequences are the effects on access. They are null if the server did not compute them,
	// and ConsequencesError says why.
	Consequences      json.RawMessage `json:"consequences"`
	ConsequencesError string          `json:"consequencesError,omitempty"`
}

type changeJSON struct {
	ID     string      `json:"id"`
	Action plan.Action `json:"action"`
	Kind   string      `json:"kind"`
	Label  string      `json:"label"`
	Was    string      `json:"was,omitempty"`
	UID    string      `json:"uid,omitempty"`
	Source string      `json:"source,omitempty"`
	Fields []fieldJSON `json:"fields,omitempty"`
}

type fieldJSON struct {
	Name string      `json:"name"`
	Old  model.Value `json:"old"`
	New  model.Value `json:"new"`
}

func jsonPlan(p *comparison) planJSON {
	out := planJSON{Group: p.state.Group, Changes: []changeJSON{}, Unnamed: p.Unnamed, Unread: []string{},
		Counters: map[string]int{}, Consequences: json.RawMessage("null"), ConsequencesError: p.refusal}
	if p.checked != nil {
		if text, err := protojson.Marshal(p.checked.GetConsequences()); err == nil {
			out.Consequences = text
		}
	}
	for _, c := range p.Changes {
		j := changeJSON{ID: c.ID, Action: c.Action, Kind: c.Kind.Name, Label: c.Label(), Was: c.Was}
		if c.Current != nil {
			j.UID = c.Current.UID
		}
		if c.Wanted != nil {
			j.Source = c.Wanted.Source.String()
		}
		for _, f := range c.Fields {
			j.Fields = append(j.Fields, fieldJSON(f))
		}
		out.Changes = append(out.Changes, j)
		out.Counters[string(c.Action)]++
	}
	for _, k := range p.Unread {
		out.Unread = append(out.Unread, k.Name)
	}
	return out
}
