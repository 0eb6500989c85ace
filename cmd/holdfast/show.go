package main

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// printer returns the printer that the settings ask for.
func (a *app) printer(v view, d protoreflect.MessageDescriptor, many bool) (printer, error) {
	format, err := a.value("output")
	if err != nil {
		return nil, err
	}
	return newPrinter(a.console, format.value, a.chosen, v, d, many)
}

// show prints one message.
func (a *app) show(v view, m proto.Message) error {
	return printAll(a, v, false, []proto.Message{m}, m)
}

// showAll prints messages as a list.
func showAll[T proto.Message](a *app, v view, all []T) error {
	var none T
	return printAll(a, v, true, all, none)
}

func printAll[T proto.Message](a *app, v view, many bool, all []T, like T) error {
	p, err := a.printer(v, like.ProtoReflect().Descriptor(), many)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := p.add(m.ProtoReflect()); err != nil {
			return err
		}
	}
	return p.close()
}

// showAnswer prints an answer that has rows: as JSON or YAML the whole message,
// as CSV or ids the rows, and as a table the rows or else what say prints.
func showAnswer[T proto.Message](a *app, v view, m proto.Message, rows []T, say func()) error {
	format, err := a.value("output")
	if err != nil {
		return err
	}
	switch format.value {
	case "json", "yaml":
		return a.show(v, m)
	case "", "table", "wide":
		if say != nil {
			say()
			return nil
		}
	}
	return showAll(a, v, rows)
}
