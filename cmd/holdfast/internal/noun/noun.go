// Package noun makes commands from tables. A Noun lists the flags and columns of one
// resource type. The commands list, get, create, update and delete are derived from the
// Noun and from the definition of the API.
//
// An App is the state that all commands share: the connection, the settings and the
// console.
package noun

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

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
)

// A Noun describes a kind of resource: its name, the flags that set its fields, and
// the columns that show them.
type Noun struct {
	Area     string // parent command; if "", iam
	Use, One string // plural on the command line, and singular in a sentence
	Short    string // short help of the command; if "", "Manage" and the noun
	About    string
	Example  string                         // example in the help of create
	Service  protoreflect.ServiceDescriptor // if nil, the first service in the file that defines the message
	Writing  protoreflect.ServiceDescriptor // service with the methods that write, if Service has none
	Message  protoreflect.MessageDescriptor
	// Kind is the server's name for the kind, to look up paths. If it is "", the server
	// resolves only paths of groups.
	Kind string

	Argument string  // field that is the argument of create; "" if create has no argument
	Fields   []Field // flags of create and update
	// Defaults sets fields of a new resource before the flags do. It may be nil.
	Defaults    func(m protoreflect.Message)
	CreateFlags []Field // flags of create for fields of the request
	UpdateFlags []Field // flags of update for fields of the request
	Filters     []Field // flags of list
	Columns     []output.Column
	Wide        []output.Column
	Created     []output.Column // columns that only create shows, in addition to the others
	ID          string          // field that -o id prints; if "", uid
	Upright     bool            // whether get prints the columns one below the other instead of the fields
	// Sorted reports whether this program sorts the rows of a page, because the server
	// cannot sort this kind by name.
	Sorted bool
	ByName bool // whether list asks the server to sort by name
	// ListFlag is a filter of list that can also be given as an argument, because it selects the resource whose parts
	// are listed. It is "" if list has no argument.
	ListFlag string
	// Console returns the path of a resource's page below /console. It is nil if the console has no such page.
	Console func(m protoreflect.Message) string
	empty   func() string // note below an empty list; if nil, "no " and the plural

	Parent     func() Noun // kind of the parent; if nil, a group
	ParentFlag string      // name of the flag for the parent; if "", parent
	// Named returns another kind whose names identify resources of this kind. It is nil if
	// this kind has names of its own.
	Named    func() Noun
	Broad    bool // whether create asks for confirmation if the parent is the organization of the settings
	orphan   bool // whether create accepts --root instead of a parent
	NoDryRun bool // whether delete lacks the flag --dry-run

	Form string // placeholder of the argument that identifies a resource; if "", derived from the name
	// Locate finds the UID of a resource if names and paths of groups are not enough.
	Locate func(ctx context.Context, a *App, text string) (string, error)
	// Page prints a resource for a person. If it is nil, every field is printed on its own
	// line.
	Page func(a *App, m protoreflect.Message)

	// Announce adds flags to create. The function that it returns prints a new resource for
	// a person.
	Announce func(a *App, cmd *cobra.Command) func(ctx context.Context, m protoreflect.Message) error

	// Remark prints notes about a resource that was just created. It may be nil.
	Remark func(ctx context.Context, a *App, m protoreflect.Message)

	OtherFlags map[string]string // names of flags by the path of a field that has no flag of its own
	Rewrite    rewrite
	Extra      []func(*App) *cobra.Command
	Presets    []func(*App) *cobra.Command // subcommands of create
}

// A rewrite handles flags that depend on each other. It returns a function that maps the
// path of a field to the path to set. uid is "" if the resource is being created.
type rewrite func(ctx context.Context, a *App, cmd *cobra.Command, uid string) (func(path string) string, error)

// Method returns the method whose name is verb followed by the name of the resource, or
// nil if there is none.
func (n Noun) Method(verb string) protoreflect.MethodDescriptor {
	service := n.Service
	if service == nil {
		service = n.Message.ParentFile().Services().Get(0)
	}
	if verb != "List" {
		name := protoreflect.Name(verb) + n.Message.Name()
		if m := service.Methods().ByName(name); m != nil || n.Writing == nil {
			return m
		}
		return n.Writing.Methods().ByName(name)
	}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		if strings.HasPrefix(string(m.Name()), verb) && m.Output().Fields().ByNumber(1).Message() == n.Message {
			return m
		}
	}
	return nil
}

// View returns the view that prints these resources.
func (n Noun) View() output.View {
	return output.View{Plural: n.plural(), ID: n.ID, Columns: n.Columns, Wide: n.Wide, Empty: n.empty}
}

// body returns the field of a request that contains the resource.
func (n Noun) body(request protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	for i := range request.Fields().Len() {
		if fd := request.Fields().Get(i); fd.Message() == n.Message {
			return fd
		}
	}
	panic("no resource in " + request.FullName())
}

// PageAt returns a Console for resources whose page is at a path followed by their UID.
func PageAt(path string) func(m protoreflect.Message) string {
	return func(m protoreflect.Message) string { return path + UIDOf(m) }
}

func (n Noun) hasName() bool { return n.Message.Fields().ByName("name") != nil }

func (n Noun) parentNoun() Noun {
	if n.Parent == nil {
		return Groups()
	}
	return n.Parent()
}

// Command returns the commands of a noun, one for each method of the API.
func (a *App) Command(n Noun) *cobra.Command {
	cmd := a.Branch(n.Use, cmp.Or(n.Short, "Manage "+n.plural()))
	cmd.Long = n.About
	for verb, command := range map[string]func(Noun) *cobra.Command{
		"List": a.ListCommand, "Get": a.getCommand, "Create": a.createCommand, "Update": a.updateCommand,
		"Delete": a.DeleteCommand,
	} {
		if n.Method(verb) != nil {
			cmd.AddCommand(command(n))
		}
	}
	for _, f := range n.Extra {
		cmd.AddCommand(f(a))
	}
	return cmd
}

func (n Noun) plural() string { return strings.ReplaceAll(n.Use, "-", " ") }

// reference returns the placeholder of the argument that identifies a resource.
func (n Noun) reference() string {
	switch {
	case n.Form != "":
		return n.Form
	case n.Named != nil:
		return n.Named().reference()
	case n.hasName():
		return strings.ToUpper(strings.ReplaceAll(n.One, " ", "-"))
	}
	return "UID"
}

// About makes cmd a command with one argument, which identifies a resource. run gets the
// UID.
func (a *App) About(
	n Noun, cmd *cobra.Command, run func(ctx context.Context, cmd *cobra.Command, uid string) error,
) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.ExactArgs(1), a.CompleteArgs(n)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		uid, err := a.Resolve(ctx, n, args[0])
		if err != nil {
			return err
		}
		return run(ctx, cmd, uid)
	})
	return cmd
}

func (a *App) getCommand(n Noun) *cobra.Command {
	cmd := &cobra.Command{Use: "get " + n.reference(), Short: "Show " + article(n.One)}
	web := false
	if n.Console != nil {
		cmd.Flags().BoolVar(&web, "web", false, "open its page in the console, in a browser")
	}
	return a.About(n, cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		m, err := a.Get(ctx, n, uid)
		if err != nil {
			return err
		}
		if web {
			return a.Browse(ctx, signin.ConsolePage(n.Console(m)))
		}
		format, err := a.Value("output")
		if err != nil {
			return err
		}
		paged := len(a.Columns) == 0 && slices.Contains([]string{"", "table", "wide"}, format.Text)
		switch {
		case paged && n.Page != nil && format.Text == "":
			n.Page(a, m)
		case paged && n.Page == nil:
			p := output.Page{Console: a.Console, Names: a.names(ctx), UIDs: format.Text == "wide", IsUID: settings.IsUID}
			if n.Upright {
				p.ShowColumns(slices.Concat(n.Columns, n.Wide), m)
				return nil
			}
			p.Show(m)
		default:
			return a.Show(ctx, n.View(), m.Interface())
		}
		return nil
	})
}

// Get returns one resource.
func (a *App) Get(ctx context.Context, n Noun, uid string) (protoreflect.Message, error) {
	method := n.Method("Get")
	req := NewMessage(method.Input())
	Put(req, "uid", uid)
	return a.callMethod(ctx, method, req.Interface(), map[string]string{"uid": n.reference()})
}

func (a *App) createCommand(n Noun) *cobra.Command {
	use, args := "create", cobra.NoArgs
	if n.Argument != "" {
		use, args = "create "+strings.ToUpper(n.Argument), cobra.ExactArgs(1)
	}
	var announce func(context.Context, protoreflect.Message) error
	cmd := &cobra.Command{
		Use: use, Short: "Create " + article(n.One), Example: n.Example, Args: args,
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			m, err := a.create(ctx, n, cmd, args)
			if err != nil {
				return err
			}
			if n.Remark != nil && !isDry(cmd) {
				defer n.Remark(ctx, a, m)
			}
			if format, err := a.Value("output"); err == nil && announce != nil && len(a.Columns) == 0 && !isDry(cmd) &&
				(format.Text == "" || format.Text == "table") {
				return announce(ctx, m)
			}
			n.Columns = slices.Concat(n.Columns, n.Created)
			return a.Show(ctx, n.View(), m.Interface())
		}),
	}
	a.RegisterFields(cmd, n.Fields, n.Message)
	a.RegisterFields(cmd, n.CreateFlags, n.Method("Create").Input())
	flag := n.parentFlagName()
	a.RegisterRef(cmd, new(string), flag, n.parentNoun(), "`"+n.parentNoun().reference()+"` to create it in")
	if n.Broad {
		cmd.Flags().BoolP("yes", "y", false, "without --"+flag+": do not ask for confirmation")
	}
	if n.orphan {
		cmd.Flags().Bool("root", false, "create an organization, which has no parent")
		cmd.MarkFlagsMutuallyExclusive("root", flag)
	}
	AddDryRun(cmd)
	if n.Announce != nil {
		announce = n.Announce(a, cmd)
	}
	for _, f := range n.Presets {
		cmd.AddCommand(f(a))
	}
	return cmd
}

func isDry(cmd *cobra.Command) bool {
	dry, _ := cmd.Flags().GetBool("dry-run")
	return dry
}

func (n Noun) parentFlagName() string { return cmp.Or(n.ParentFlag, "parent") }

// RegisterRef adds a flag whose value identifies a resource of the noun.
func (a *App) RegisterRef(cmd *cobra.Command, value *string, flag string, n Noun, help string) {
	cmd.Flags().StringVar(value, flag, "", help)
	problem.Must(cmd.RegisterFlagCompletionFunc(flag, a.CompleteFlag(n)))
}

// RegisterFields adds the flags of fields to cmd. The fields belong to message d.
func (a *App) RegisterFields(cmd *cobra.Command, fields []Field, d protoreflect.MessageDescriptor) {
	for _, f := range fields {
		f.register(cmd, d)
		if f.Ref != nil {
			problem.Must(cmd.RegisterFlagCompletionFunc(f.Flag, a.CompleteFlag(f.Ref())))
		}
	}
}

// AddDryRun adds the flag --dry-run, which Write reads.
func AddDryRun(cmd *cobra.Command) {
	cmd.Flags().Bool("dry-run", false, "validate the request without changing anything")
}

func article(word string) string {
	if strings.HasSuffix(word, "s") {
		return word // a plural, such as settings, has no article
	}
	if strings.ContainsRune("aeiou", rune(word[0])) {
		return "an " + word
	}
	return "a " + word
}

func (a *App) create(ctx context.Context, n Noun, cmd *cobra.Command, args []string) (protoreflect.Message, error) {
	method := n.Method("Create")
	req := NewMessage(method.Input())
	parent, err := a.ParentOf(ctx, n, cmd)
	if err != nil {
		return nil, err
	}
	if err := a.confirmParent(ctx, n, cmd, parent); err != nil {
		return nil, err
	}
	Put(req, "parent", parent)
	resource := req.Mutable(n.body(method.Input())).Message()
	if n.Defaults != nil {
		n.Defaults(resource)
	}
	if n.Argument != "" {
		Put(resource, n.argumentField(), args[0])
	}
	_, flags, err := a.fill(ctx, n, cmd, resource, "")
	if err != nil {
		return nil, err
	}
	for _, f := range n.CreateFlags {
		flags[f.path()] = "--" + f.Flag
	}
	if err := a.Fill(ctx, cmd, n.CreateFlags, req.Interface()); err != nil {
		return nil, err
	}
	flags["parent"] = "--" + n.parentFlagName()
	if n.Argument != "" {
		flags[n.argumentField()] = strings.ToUpper(n.Argument)
	}
	if _, ok := flags["display_name"]; ok {
		flags["name"] += "; use --display-name for capitals and accents"
	}
	return a.Write(ctx, cmd, method, req, flags)
}

func (n Noun) argumentField() string { return strings.ReplaceAll(n.Argument, "-", "_") }

// ParentOf returns the UID of the parent that the flag names, or of the organization in
// the settings.
func (a *App) ParentOf(ctx context.Context, n Noun, cmd *cobra.Command) (string, error) {
	flag := n.parentFlagName()
	if root, _ := cmd.Flags().GetBool("root"); root {
		return "", nil
	}
	text := cmd.Flags().Lookup(flag).Value.String()
	if text == "" && n.Parent == nil {
		organization, err := a.Value("organization")
		if err != nil {
			return "", err
		}
		text = organization.Text
	}
	switch {
	case text == "" && n.orphan:
		return "", problem.Usage("--%s is needed", flag).Hint("or --root, to create an organization").
			Hint(settings.Renamed()...)
	case text == "":
		return "", problem.Usage("--%s is needed", flag).Hint(settings.Renamed()...)
	}
	return a.Resolve(ctx, n.parentNoun(), text)
}

// fill sets the fields of a resource whose flags are given. It returns the paths that it
// has set, and a map from each field to its flag.
func (a *App) fill(
	ctx context.Context, n Noun, cmd *cobra.Command, m protoreflect.Message, uid string,
) (paths []string, flags map[string]string, err error) {
	rewrite := func(path string) string { return path }
	if n.Rewrite != nil {
		if rewrite, err = n.Rewrite(ctx, a, cmd, uid); err != nil {
			return nil, nil, err
		}
	}
	flags = map[string]string{}
	maps.Copy(flags, n.OtherFlags)
	for _, f := range n.Fields {
		path := rewrite(f.path())
		flags[path] = "--" + f.Flag
		given, err := f.apply(ctx, a, cmd, m, path)
		if err != nil {
			return nil, nil, err
		}
		if given {
			paths = append(paths, path)
		}
	}
	return paths, flags, nil
}

// Write sends a change. With --dry-run the server only validates it.
func (a *App) Write(
	ctx context.Context, cmd *cobra.Command, method protoreflect.MethodDescriptor, req protoreflect.Message,
	flags map[string]string,
) (protoreflect.Message, error) {
	dry, _ := cmd.Flags().GetBool("dry-run")
	if dry {
		Put(req, "validate_only", dry)
	}
	m, err := a.callMethod(ctx, method, req.Interface(), flags)
	if err == nil && dry {
		a.Note("dry run: nothing was changed")
		err = a.noteConsequences(ctx, req)
	}
	return m, err
}

func (a *App) updateCommand(n Noun) *cobra.Command {
	cmd := &cobra.Command{
		Use: "update " + n.reference(), Short: "Change " + article(n.One),
	}
	a.About(n, cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		m, err := a.update(ctx, n, cmd, uid)
		if err != nil {
			return err
		}
		return a.Show(ctx, n.View(), m.Interface())
	})
	a.RegisterFields(cmd, n.changeable(), n.Message)
	a.RegisterFields(cmd, n.UpdateFlags, n.Method("Update").Input())
	AddDryRun(cmd)
	if simulated(NewMessage(n.Method("Update").Input())) != nil && cmd.Flags().Lookup("yes") == nil {
		cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation, even if many identities lose access")
	}
	return cmd
}

// changeable returns the fields that update can change. They include the name if it is
// the argument of create.
func (n Noun) changeable() (fields []Field) {
	if n.Argument == "name" {
		fields = []Field{{Flag: "name", Help: "its new `NAME`"}}
	}
	for _, f := range n.Fields {
		if !f.createOnly {
			fields = append(fields, f)
		}
	}
	return fields
}

func (a *App) update(ctx context.Context, n Noun, cmd *cobra.Command, uid string) (protoreflect.Message, error) {
	n.Fields = n.changeable()
	method := n.Method("Update")
	req := NewMessage(method.Input())
	resource := req.Mutable(n.body(method.Input())).Message()
	Put(resource, "uid", uid)
	paths, flags, err := a.fill(ctx, n, cmd, resource, uid)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		var names []string
		for _, f := range n.Fields {
			names = append(names, "--"+f.Flag)
		}
		return nil, problem.Usage("there is nothing to change").Hint("give one or more of " + strings.Join(names, ", "))
	}
	if err := a.Fill(ctx, cmd, n.UpdateFlags, req.Interface()); err != nil {
		return nil, err
	}
	flags["uid"] = n.reference()
	Put(req, "update_mask", (&fieldmaskpb.FieldMask{Paths: paths}).ProtoReflect())
	if err := a.confirmLoss(ctx, cmd, req); err != nil {
		return nil, err
	}
	return a.Write(ctx, cmd, method, req, flags)
}

// DeleteCommand returns the command that deletes the resources in its arguments.
func (a *App) DeleteCommand(n Noun) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete " + n.reference() + "...", Short: "Delete " + n.plural(),
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.CompleteArgs(n),
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return a.Delete(ctx, n, cmd, args)
		}),
	}
	cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	if !n.NoDryRun {
		AddDryRun(cmd)
	}
	return cmd
}

// Delete deletes the resources that args identify, if the person confirms.
func (a *App) Delete(ctx context.Context, n Noun, cmd *cobra.Command, args []string) error {
	uids := make([]string, len(args))
	for i, text := range args {
		var err error
		if uids[i], err = a.Resolve(ctx, n, text); err != nil {
			return err
		}
	}
	method := n.Method("Delete")
	requests := make([]protoreflect.Message, len(uids))
	for i, uid := range uids {
		requests[i] = NewMessage(method.Input())
		Put(requests[i], "uid", uid)
	}
	if err := a.Confirm(ctx, cmd, n, args, uids, a.lossOf(ctx, cmd, requests)...); err != nil {
		return err
	}
	dry := isDry(cmd)
	for i, req := range requests {
		if dry {
			Put(req, "validate_only", dry)
		}
		if _, err := a.callMethod(ctx, method, req.Interface(), map[string]string{"uid": n.reference()}); err != nil {
			return err
		}
		if !dry {
			a.Note("deleted %s %s", n.One, args[i])
		}
	}
	if !dry {
		return nil
	}
	a.Note("dry run: nothing was changed")
	return a.noteConsequences(ctx, requests...)
}

// Confirm asks for confirmation before resources with these names and UIDs are deleted.
// It also prints the lines in also. Without a terminal it returns an error.
func (a *App) Confirm(ctx context.Context, cmd *cobra.Command, n Noun, names, uids []string, also ...string) error {
	yes, _ := cmd.Flags().GetBool("yes")
	dry, _ := cmd.Flags().GetBool("dry-run")
	if yes || dry {
		return nil
	}
	if !output.IsTerminal(a.In) {
		return problem.Usage("nothing was deleted: there is no terminal to ask for confirmation").
			Hint("use --yes to delete without confirmation")
	}
	lines := slices.Clone(names)
	called := a.Called(ctx, uids...)
	for i, name := range names {
		// The person did not type the path, so it is shown.
		if path := called(uids[i]).Path; path != name && path != uids[i] {
			name += " (" + path + ")"
		}
		lines[i] = "about to delete " + n.One + " " + name
	}
	return a.askToContinue(ctx, append(lines, also...), "nothing was deleted")
}

// Continue asks whether to continue after lines, unless --yes is given. Without a terminal,
// --yes is needed. refused says what was not done.
func (a *App) Continue(ctx context.Context, cmd *cobra.Command, lines []string, refused string) error {
	if yes, _ := cmd.Flags().GetBool("yes"); yes {
		return nil
	}
	if !output.IsTerminal(a.In) {
		return problem.Usage("%s: there is no terminal to ask for confirmation", refused).
			Hint("use --yes to continue without confirmation")
	}
	return a.askToContinue(ctx, lines, refused)
}

// confirmParent asks for confirmation if no parent is given and the resource would apply
// to the whole organization, because people often do that by mistake.
func (a *App) confirmParent(ctx context.Context, n Noun, cmd *cobra.Command, parent string) error {
	flag := n.parentFlagName()
	if !n.Broad || cmd.Flags().Changed(flag) {
		return nil
	}
	yes, _ := cmd.Flags().GetBool("yes")
	dry, _ := cmd.Flags().GetBool("dry-run")
	if yes || dry {
		return nil
	}
	name := parent
	if g, err := a.Get(ctx, Groups(), parent); err == nil {
		name = nameOf(g)
	}
	about := fmt.Sprintf("without --%s this %s applies to everything in %s", flag, n.One, name)
	if !output.IsTerminal(a.In) {
		return problem.Usage("nothing was created: %s", about).
			Hint("give --" + flag + " GROUP, or --yes for the whole organization")
	}
	return a.askToContinue(ctx, []string{about}, "nothing was created")
}

// askToContinue prints lines on the terminal and asks whether to continue. If the person
// declines, it returns an error with the text refused, which states that nothing happened.
func (a *App) askToContinue(ctx context.Context, lines []string, refused string) error {
	screen := a.Err
	if !output.IsTerminal(screen) {
		screen = a.In // asks on the terminal, because stderr is redirected
	}
	for _, line := range lines {
		fmt.Fprintln(screen, output.Printable("holdfast: "+line))
	}
	fmt.Fprint(screen, "holdfast: continue? [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.In).ReadString('\n') // an error counts as the answer no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(screen)
		return problem.New(problem.ExitInterrupted, "interrupted: %s", refused)
	case line := <-answer:
		if line == "y" || line == "yes" {
			return nil
		}
		return errors.New(refused)
	}
}
