package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// A noun is a kind of resource as people see it: what it is called, which flags
// set its fields, and which columns show them. Its commands follow from that and
// from the API's definition, whose services are all of one shape.
type noun struct {
	area     string // the command it is under; "" is iam
	use, one string // on the command line, and in a sentence
	about    string
	example  string
	service  protoreflect.ServiceDescriptor // nil: the first of the file that defines the message
	writing  protoreflect.ServiceDescriptor // where the service has none of the methods that write
	message  protoreflect.MessageDescriptor

	argument string  // the field that create takes as its argument, "" for none
	fields   []field // flags of create and update
	asked    []field // flags of create that are the request's, not the resource's
	changing []field // flags of update that are the request's
	filters  []field // flags of list
	columns  []column
	wide     []column
	created  []column // shown, beside the others, by create alone
	id       string   // the field that -o id shows; "" is uid

	parent     func() noun // what one is created in; nil is a group
	parentFlag string      // "" is parent
	named      func() noun // those whose names stand for these; nil where names are these resources' own
	orphan     bool        // one can be created without a parent, with --root
	noDryRun   bool        // delete has no --dry-run

	form   string                                                         // how the argument that names one is written; "" goes by its name
	locate func(ctx context.Context, a *app, text string) (string, error) // finds the uid of one where names and paths of groups are not enough
	page   func(a *app, m protoreflect.Message)                           // shows one to a person; nil where a row of a table will do

	flagsOf map[string]string // what sets a field that has no flag of its own
	rewrite rewrite
	extra   []func(*app) *cobra.Command
	presets []func(*app) *cobra.Command // below create
}

// A rewrite is where the flags of a noun set fields that depend on one another:
// it returns the path that stands for a field's own. uid is "" on creation.
type rewrite func(ctx context.Context, a *app, cmd *cobra.Command, uid string) (func(path string) string, error)

// method finds the method of the noun's service whose name is a verb and the
// name of the resource. There may be none.
func (n noun) method(verb string) protoreflect.MethodDescriptor {
	service := n.service
	if service == nil {
		service = n.message.ParentFile().Services().Get(0)
	}
	if verb != "List" {
		name := protoreflect.Name(verb) + n.message.Name()
		if m := service.Methods().ByName(name); m != nil || n.writing == nil {
			return m
		}
		return n.writing.Methods().ByName(name)
	}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		if items := m.Output().Fields().ByNumber(1); strings.HasPrefix(string(m.Name()), verb) && items.Message() == n.message {
			return m
		}
	}
	return nil
}

func (n noun) under() string { return cmp.Or(n.area, "iam") }

func (n noun) view() view {
	return view{plural: n.plural(), id: n.id, columns: n.columns, wide: n.wide}
}

// body is the field of a request that holds the resource.
func (n noun) body(request protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	for i := range request.Fields().Len() {
		if fd := request.Fields().Get(i); fd.Message() == n.message {
			return fd
		}
	}
	panic("no resource in " + request.FullName())
}

func (n noun) hasName() bool { return n.message.Fields().ByName("name") != nil }

func (n noun) parentNoun() noun {
	if n.parent == nil {
		return groups()
	}
	return n.parent()
}

// noun is the commands of a noun.
func (a *app) noun(n noun) *cobra.Command {
	cmd := a.branch(n.use, "Manage "+n.plural(), a.listCommand(n), a.getCommand(n), a.createCommand(n))
	cmd.Long = n.about
	if n.method("Update") != nil {
		cmd.AddCommand(a.updateCommand(n))
	}
	cmd.AddCommand(a.deleteCommand(n))
	for _, f := range n.extra {
		cmd.AddCommand(f(a))
	}
	return cmd
}

func (n noun) plural() string {
	return strings.ReplaceAll(n.use, "-", " ")
}

// reference is how the argument that names one is written.
func (n noun) reference() string {
	switch {
	case n.form != "":
		return n.form
	case n.named != nil:
		return n.named().reference()
	case n.hasName():
		return strings.ToUpper(strings.ReplaceAll(n.one, " ", "-"))
	}
	return "UID"
}

// about completes a command whose one argument names one of a noun. run gets its
// uid.
func (a *app) about(
	n noun, cmd *cobra.Command, run func(ctx context.Context, cmd *cobra.Command, uid string) error,
) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.ExactArgs(1), a.completeArgs(n)
	cmd.RunE = a.ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		uid, err := a.resolve(ctx, n, args[0])
		if err != nil {
			return err
		}
		return run(ctx, cmd, uid)
	})
	return cmd
}

func (a *app) getCommand(n noun) *cobra.Command {
	cmd := &cobra.Command{Use: "get " + n.reference(), Short: "Show one " + n.one}
	return a.about(n, cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		m, err := a.get(ctx, n, uid)
		if err != nil {
			return err
		}
		format, err := a.value("output")
		if err == nil && n.page != nil && format.value == "" && len(a.chosen) == 0 {
			n.page(a, m)
			return nil
		}
		return a.show(n.view(), m.Interface())
	})
}

func (a *app) get(ctx context.Context, n noun, uid string) (protoreflect.Message, error) {
	method := n.method("Get")
	req := newMessage(method.Input())
	put(req, "uid", uid)
	return a.callMethod(ctx, method, req.Interface(), map[string]string{"uid": n.reference()})
}

func (a *app) createCommand(n noun) *cobra.Command {
	use, args := "create", cobra.NoArgs
	if n.argument != "" {
		use, args = "create "+strings.ToUpper(n.argument), cobra.ExactArgs(1)
	}
	cmd := &cobra.Command{
		Use: use, Short: "Create " + article(n.one), Example: n.example, Args: args,
		RunE: a.ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			m, err := a.create(ctx, n, cmd, args)
			if err != nil {
				return err
			}
			n.columns = slices.Concat(n.columns, n.created)
			return a.show(n.view(), m.Interface())
		}),
	}
	for _, f := range n.fields {
		a.registerField(cmd, f, n.message)
	}
	for _, f := range n.asked {
		a.registerField(cmd, f, n.method("Create").Input())
	}
	flag := n.parentFlagName()
	cmd.Flags().String(flag, "", "`"+n.parentNoun().reference()+"` to create it in")
	must(cmd.RegisterFlagCompletionFunc(flag, a.completeFlag(n.parentNoun())))
	if n.orphan {
		cmd.Flags().Bool("root", false, "create it without a parent")
		cmd.MarkFlagsMutuallyExclusive("root", flag)
	}
	addDryRun(cmd)
	for _, f := range n.presets {
		cmd.AddCommand(f(a))
	}
	return cmd
}

func (n noun) parentFlagName() string { return cmp.Or(n.parentFlag, "parent") }

// registerRef adds a flag that names one of a noun.
func (a *app) registerRef(cmd *cobra.Command, value *string, flag string, n noun, help string) {
	cmd.Flags().StringVar(value, flag, "", help)
	must(cmd.RegisterFlagCompletionFunc(flag, a.completeFlag(n)))
}

func (a *app) registerField(cmd *cobra.Command, f field, d protoreflect.MessageDescriptor) {
	f.register(cmd, d)
	if f.ref != nil {
		must(cmd.RegisterFlagCompletionFunc(f.flag, a.completeFlag(f.ref())))
	}
}

func addDryRun(cmd *cobra.Command) {
	cmd.Flags().Bool("dry-run", false, "check everything, and change nothing")
}

func article(word string) string {
	if strings.ContainsRune("aeiou", rune(word[0])) {
		return "an " + word
	}
	return "a " + word
}

func (a *app) create(ctx context.Context, n noun, cmd *cobra.Command, args []string) (protoreflect.Message, error) {
	method := n.method("Create")
	req := newMessage(method.Input())
	parent, err := a.parentOf(ctx, n, cmd)
	if err != nil {
		return nil, err
	}
	put(req, "parent", parent)
	resource := req.Mutable(n.body(method.Input())).Message()
	if n.argument != "" {
		put(resource, n.argumentField(), args[0])
	}
	_, flags, err := a.fill(ctx, n, cmd, resource, "")
	if err != nil {
		return nil, err
	}
	for _, f := range n.asked {
		flags[f.path] = "--" + f.flag
		if _, err := f.apply(ctx, a, cmd.Flags(), req, f.path); err != nil {
			return nil, err
		}
	}
	flags["parent"] = "--" + n.parentFlagName()
	if n.argument != "" {
		flags[n.argumentField()] = strings.ToUpper(n.argument)
	}
	return a.write(ctx, cmd, method, req, flags)
}

func (n noun) argumentField() string { return strings.ReplaceAll(n.argument, "-", "_") }

// parentOf finds what to create one in: what the flag names, or else the
// organization of the settings.
func (a *app) parentOf(ctx context.Context, n noun, cmd *cobra.Command) (string, error) {
	flag := n.parentFlagName()
	if root, _ := cmd.Flags().GetBool("root"); root {
		return "", nil
	}
	text, err := cmd.Flags().GetString(flag)
	if err != nil {
		return "", err
	}
	if text == "" && n.parent == nil {
		organization, err := a.value("organization")
		if err != nil {
			return "", err
		}
		text = organization.value
	}
	if text == "" {
		p := usage("--%s is needed", flag)
		if n.orphan {
			p.hints = []string{"or --root, to create an organization"}
		}
		return "", p
	}
	return a.resolve(ctx, n.parentNoun(), text)
}

// fill sets what the flags of a command say. It returns the paths it has set,
// and for each field the flag that sets it.
func (a *app) fill(ctx context.Context, n noun, cmd *cobra.Command, m protoreflect.Message, uid string) (paths []string, flags map[string]string, err error) {
	rewrite := func(path string) string { return path }
	if n.rewrite != nil {
		if rewrite, err = n.rewrite(ctx, a, cmd, uid); err != nil {
			return nil, nil, err
		}
	}
	flags = maps.Clone(n.flagsOf)
	if flags == nil {
		flags = map[string]string{}
	}
	for _, f := range n.fields {
		path := rewrite(f.path)
		flags[path] = "--" + f.flag
		given, err := f.apply(ctx, a, cmd.Flags(), m, path)
		if err != nil {
			return nil, nil, err
		}
		if given {
			paths = append(paths, path)
		}
	}
	return paths, flags, nil
}

// write sends a change, or only has it checked.
func (a *app) write(ctx context.Context, cmd *cobra.Command, method protoreflect.MethodDescriptor, req protoreflect.Message, flags map[string]string) (protoreflect.Message, error) {
	dry, _ := cmd.Flags().GetBool("dry-run")
	if dry {
		put(req, "validate_only", dry)
	}
	m, err := a.callMethod(ctx, method, req.Interface(), flags)
	if err == nil && dry {
		a.note("dry run: nothing was changed")
	}
	return m, err
}

func (a *app) updateCommand(n noun) *cobra.Command {
	cmd := &cobra.Command{
		Use: "update " + n.reference(), Short: "Change the fields of " + article(n.one) + " that flags are given for",
	}
	a.about(n, cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		m, err := a.update(ctx, n, cmd, uid)
		if err != nil {
			return err
		}
		return a.show(n.view(), m.Interface())
	})
	for _, f := range n.changeable().fields {
		a.registerField(cmd, f, n.message)
	}
	for _, f := range n.changing {
		a.registerField(cmd, f, n.method("Update").Input())
	}
	addDryRun(cmd)
	return cmd
}

// changeable is the noun with the fields that can be changed: what create takes
// as an argument has a flag here.
func (n noun) changeable() noun {
	fields := slices.DeleteFunc(slices.Clone(n.fields), func(f field) bool { return f.createOnly })
	if n.argument == "name" {
		fields = slices.Insert(fields, 0, field{flag: "name", path: "name", help: "its new `NAME`"})
	}
	n.fields = fields
	return n
}

func (a *app) update(ctx context.Context, n noun, cmd *cobra.Command, uid string) (protoreflect.Message, error) {
	n = n.changeable()
	method := n.method("Update")
	req := newMessage(method.Input())
	resource := req.Mutable(n.body(method.Input())).Message()
	put(resource, "uid", uid)
	paths, flags, err := a.fill(ctx, n, cmd, resource, uid)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		var all []string
		for _, f := range n.fields {
			all = append(all, "--"+f.flag)
		}
		return nil, usage("there is nothing to change").hint("give one or more of " + strings.Join(all, ", "))
	}
	for _, f := range n.changing {
		if _, err := f.apply(ctx, a, cmd.Flags(), req, f.path); err != nil {
			return nil, err
		}
	}
	flags["uid"] = n.reference()
	put(req, "update_mask", (&fieldmaskpb.FieldMask{Paths: paths}).ProtoReflect())
	return a.write(ctx, cmd, method, req, flags)
}

func (a *app) deleteCommand(n noun) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete " + n.reference() + "...", Short: "Delete " + n.plural(),
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeArgs(n),
		RunE: a.ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return a.delete(ctx, n, cmd, args)
		}),
	}
	cmd.Flags().BoolP("yes", "y", false, "do not ask")
	if !n.noDryRun {
		addDryRun(cmd)
	}
	return cmd
}

func (a *app) delete(ctx context.Context, n noun, cmd *cobra.Command, args []string) error {
	uids := make([]string, len(args))
	for i, text := range args {
		var err error
		if uids[i], err = a.resolve(ctx, n, text); err != nil {
			return err
		}
	}
	if err := a.confirm(ctx, cmd, n, args, uids); err != nil {
		return err
	}
	method := n.method("Delete")
	for _, uid := range uids {
		req := newMessage(method.Input())
		put(req, "uid", uid)
		if _, err := a.write(ctx, cmd, method, req, map[string]string{"uid": n.reference()}); err != nil {
			return err
		}
		if dry, _ := cmd.Flags().GetBool("dry-run"); !dry {
			a.note("deleted %s %s", n.one, uid)
		}
	}
	return nil
}

// confirm asks whether to delete, if there is somebody to ask.
func (a *app) confirm(ctx context.Context, cmd *cobra.Command, n noun, names, uids []string) error {
	yes, _ := cmd.Flags().GetBool("yes")
	dry, _ := cmd.Flags().GetBool("dry-run")
	if yes || dry {
		return nil
	}
	if !isTerminal(a.in) {
		return usage("nothing was deleted: there is no terminal to ask on").hint("--yes deletes without asking")
	}
	screen := a.err
	if !isTerminal(screen) {
		screen = a.in // the terminal itself, when only errors go elsewhere
	}
	for i, name := range names {
		what := fmt.Sprintf("%s %s", n.one, name)
		if name != uids[i] {
			what += " (" + uids[i] + ")"
		}
		fmt.Fprintln(screen, printable("holdfast: about to delete "+what))
	}
	fmt.Fprint(screen, "holdfast: go on? [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n') // no answer is a no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(screen)
		return newProblem(exitInterrupted, "interrupted: nothing was deleted")
	case line := <-answer:
		if line == "y" || line == "yes" {
			return nil
		}
		return errors.New("nothing was deleted")
	}
}
