package noun

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
)

// printer returns the printer that the settings ask for.
func (a *App) printer(v output.View, d protoreflect.MessageDescriptor, many bool) (output.Printer, error) {
	format, err := a.Value("output")
	if err != nil {
		return nil, err
	}
	return output.NewPrinter(a.Console, format.Text, a.Chosen, v, d, many)
}

// Show prints one message.
func (a *App) Show(v output.View, m proto.Message) error {
	return printAll(a, v, false, []proto.Message{m}, m)
}

// ShowAll prints messages as a list.
func ShowAll[T proto.Message](a *App, v output.View, all []T) error {
	var none T
	return printAll(a, v, true, all, none)
}

func printAll[T proto.Message](a *App, v output.View, many bool, all []T, like T) error {
	p, err := a.printer(v, like.ProtoReflect().Descriptor(), many)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := p.Add(m.ProtoReflect()); err != nil {
			return err
		}
	}
	return p.Close()
}

// ShowAnswer prints an answer that has rows: as JSON or YAML the whole message,
// as CSV or ids the rows, and as a table the rows or else what say prints.
func ShowAnswer[T proto.Message](a *App, v output.View, m proto.Message, rows []T, say func()) error {
	format, err := a.Value("output")
	if err != nil {
		return err
	}
	switch format.Text {
	case "json", "yaml":
		return a.Show(v, m)
	case "", "table", "wide":
		if say != nil {
			say()
			return nil
		}
	}
	return ShowAll(a, v, rows)
}
