package noun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
)

// maxPage is the largest page size of the server.
const maxPage = 200

// Paging contains the flags that every list has.
type Paging struct {
	limit, pageSize, skip int32
	OrderBy               string
}

// Register adds the flags to a command.
func (p *Paging) Register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Int32Var(&p.limit, "limit", 0, "show at most `N` results (0: all)")
	f.Int32Var(&p.pageSize, "page-size", maxPage, "request `N` results per page")
	f.Int32Var(&p.skip, "skip", 0, "skip the first `N` results")
	f.StringVar(&p.OrderBy, "order-by", "", "sort by a `FIELD`, such as name or \"create_time desc\"")
}

func (p Paging) check() error {
	if p.limit < 0 || p.pageSize < 1 || p.skip < 0 {
		return problem.Usage("--limit and --skip must not be negative, and --page-size must be at least 1")
	}
	return nil
}

var pagingFlags = map[string]string{
	"page_size": "--page-size", "order_by": "--order-by", "skip": "--skip", "name": "--name",
	"uidp.children_of": "--parent", "uidp.descendants_of": "--parent",
	"capability": "CAPABILITY", "place_uid": "PLACE", // the last two fields are arguments of iam who-can
	"as_of": "--as-of", "from_time": "--from", "to_time": "--to",
}

// ListCommand returns the command that lists the resources of a noun.
func (a *App) ListCommand(n Noun) *cobra.Command {
	var p Paging
	method := n.Method("List")
	cmd := &cobra.Command{
		Use: "list", Short: "List " + n.plural(), Aliases: []string{"ls"}, Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := n.readListArgument(cmd, args); err != nil {
				return err
			}
			req := NewMessage(method.Input())
			if err := a.Narrow(ctx, n, cmd, req); err != nil {
				return err
			}
			n.empty = func() string { return a.noteNone(ctx, n, cmd) }
			if p.OrderBy == "" && n.ByName {
				p.OrderBy = "name"
			}
			return a.PrintAll(ctx, n, req.Interface(), p)
		}),
	}
	if n.ListFlag != "" {
		parent := n.parentNoun()
		cmd.Use, cmd.Args = "list ["+parent.reference()+"]", cobra.MaximumNArgs(1)
		cmd.ValidArgsFunction = a.CompleteArgs(parent)
	}
	p.Register(cmd)
	a.RegisterFilters(cmd, n)
	if method.Input().Fields().ByName("name") != nil {
		cmd.Flags().String("name", "", "only resources with this exact `NAME`")
	}
	return cmd
}

// readListArgument sets the flag ListFlag to the argument of list, if there is one.
func (n Noun) readListArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.Flags().Changed(n.ListFlag) {
		return problem.Usage("give %s as an argument or with --%s, not both", strings.ToUpper(n.ListFlag), n.ListFlag)
	}
	return cmd.Flags().Set(n.ListFlag, args[0])
}

// noteNone returns the note below an empty list. If --parent is given without --recursive, and there are resources in
// subgroups, it suggests --recursive.
func (a *App) noteNone(ctx context.Context, n Noun, cmd *cobra.Command) string {
	note := "no " + n.plural()
	parent, _ := cmd.Flags().GetString("parent")
	recursive, _ := cmd.Flags().GetBool("recursive")
	if parent == "" || recursive {
		return note
	}
	method := n.Method("List")
	total := method.Output().Fields().ByName("total_count")
	if total == nil || cmd.Flags().Set("recursive", "true") != nil {
		return note
	}
	req := NewMessage(method.Input())
	if a.Narrow(ctx, n, cmd, req) != nil {
		return note
	}
	Put(req, "page_size", int32(1))
	below, err := a.callMethod(ctx, method, req.Interface(), nil)
	if err != nil || below.Get(total).Int() == 0 {
		return note
	}
	return fmt.Sprintf("%s directly in %s; its subgroups have %d: add --recursive", note, parent, below.Get(total).Int())
}

// RegisterFilters adds the flags that Narrow reads.
func (a *App) RegisterFilters(cmd *cobra.Command, n Noun) {
	request := n.Method("List").Input()
	if request.Fields().ByName("uidp") != nil {
		a.RegisterRef(cmd, new(string), "parent", Groups(), "only resources directly in `GROUP`")
		cmd.Flags().BoolP("recursive", "r", false, "with --parent: also resources in subgroups")
	}
	a.RegisterFields(cmd, n.Filters, request)
}

// Narrow sets the filters of a request from the flags.
func (a *App) Narrow(ctx context.Context, n Noun, cmd *cobra.Command, req protoreflect.Message) error {
	parent, _ := cmd.Flags().GetString("parent")
	recursive, _ := cmd.Flags().GetBool("recursive")
	switch {
	case parent != "":
		uid, err := a.Resolve(ctx, Groups(), parent)
		if err != nil {
			return err
		}
		scope := "uidp.children_of"
		if recursive {
			scope = "uidp.descendants_of"
		}
		Put(req, scope, uid)
	case recursive:
		return problem.Usage("--recursive needs --parent; without both flags, the list has everything that you can see")
	}
	if name, _ := cmd.Flags().GetString("name"); name != "" {
		Put(req, "name", name)
	}
	return a.Fill(ctx, cmd, n.Filters, req.Interface())
}

// methodFor returns the method whose input is req, because several methods may list the same
// resource.
func (n Noun) methodFor(req proto.Message) protoreflect.MethodDescriptor {
	service := req.ProtoReflect().Descriptor().ParentFile().Services()
	for i := range service.Len() {
		for j := range service.Get(i).Methods().Len() {
			if m := service.Get(i).Methods().Get(j); m.Input() == req.ProtoReflect().Descriptor() {
				return m
			}
		}
	}
	return n.Method("List")
}

// PrintAll prints all items of a list, page by page.
func (a *App) PrintAll(ctx context.Context, n Noun, req proto.Message, p Paging) error {
	if err := p.check(); err != nil {
		return err
	}
	view := n.View()
	view.Sorted = p.OrderBy == "" && n.Sorted
	out, err := a.printer(ctx, view, n.Message, true)
	if err != nil {
		return err
	}
	incomplete := false
	for page, err := range holdfast.Pages(ctx, a.pages(n.methodFor(req), p), p.set(req.ProtoReflect())) {
		if err != nil {
			return err
		}
		for _, m := range page.items {
			if err := out.Add(m); err != nil {
				return err
			}
		}
		if err := a.flush(out); err != nil {
			return err
		}
		incomplete = incomplete || page.incomplete
	}
	if incomplete {
		a.Note("%s", IncompleteNote)
	}
	return out.Close()
}

// PrintAnswer is like PrintAll, but prints the whole response in JSON and YAML, with the items of all pages, because an
// empty list has no meaning without the rest of the response. empty returns the note below a table without rows.
// PrintAnswer returns the first response.
func (a *App) PrintAnswer(
	ctx context.Context, n Noun, req proto.Message, p Paging, empty func(answer proto.Message) string,
) (answer proto.Message, _ error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	format, err := a.Value("output")
	if err != nil {
		return nil, err
	}
	whole := format.Text == "json" || format.Text == "yaml"
	view := n.View()
	view.Empty = func() string { return empty(answer) }
	out, err := a.printer(ctx, view, n.Message, true)
	if err != nil {
		return nil, err
	}
	for page, err := range holdfast.Pages(ctx, a.pages(n.methodFor(req), p), p.set(req.ProtoReflect())) {
		if err != nil {
			return nil, err
		}
		if answer == nil {
			answer = page.answer.Interface()
		} else if whole {
			appendItems(answer.ProtoReflect(), page.items)
		}
		if whole {
			continue
		}
		for _, m := range page.items {
			if err := out.Add(m); err != nil {
				return nil, err
			}
		}
		if err := a.flush(out); err != nil {
			return nil, err
		}
	}
	if !whole {
		return answer, out.Close()
	}
	answer.ProtoReflect().Clear(answer.ProtoReflect().Descriptor().Fields().ByName("next_page_token"))
	return answer, a.Show(ctx, view, answer)
}

// appendItems adds items to the list of a response, which is its first field.
func appendItems(answer protoreflect.Message, items []protoreflect.Message) {
	list := answer.Mutable(answer.Descriptor().Fields().ByNumber(1)).List()
	for _, m := range items {
		list.Append(protoreflect.ValueOfMessage(m))
	}
}

// PrintList prints the items of several lists as one list.
func (a *App) PrintList(ctx context.Context, n Noun, items iter.Seq2[protoreflect.Message, error]) error {
	out, err := a.printer(ctx, n.View(), n.Message, true)
	if err != nil {
		return err
	}
	for m, err := range items {
		if err != nil {
			return err
		}
		if err := out.Add(m); err != nil {
			return err
		}
	}
	return out.Close()
}

// PrintEach prints each item when it arrives. In JSON and YAML each item is a separate
// document, because the list may never end.
func (a *App) PrintEach(ctx context.Context, n Noun, items iter.Seq2[protoreflect.Message, error]) error {
	format, err := a.Value("output")
	if err != nil {
		return err
	}
	separate := format.Text == "json" || format.Text == "yaml"
	out, err := a.printer(ctx, n.View(), n.Message, !separate)
	if err != nil {
		return err
	}
	for m, err := range items {
		if err != nil {
			return err
		}
		if err := out.Add(m); err != nil {
			return err
		}
		if separate {
			err = errors.Join(out.Close(), a.Out.Flush())
		} else {
			err = a.flush(out)
		}
		if err != nil {
			return err
		}
	}
	return a.flush(out)
}

// flush writes the buffered output.
func (a *App) flush(out output.Printer) error {
	if err := out.Flush(); err != nil {
		return err
	}
	return a.Out.Flush()
}

// IncompleteNote is printed if the caller cannot see all bindings.
const IncompleteNote = "there are parent groups that you cannot see; bindings on them are not shown"

// A page is one response to a list request.
type page struct {
	answer     protoreflect.Message
	items      []protoreflect.Message
	incomplete bool
	next       string
}

// GetNextPageToken returns the token of the next page, or "" after the last page within
// the limit.
func (p page) GetNextPageToken() string { return p.next }

// set sets the fields that are the same for all pages of a list.
func (p Paging) set(req protoreflect.Message) proto.Message {
	Put(req, "order_by", p.OrderBy)
	Put(req, "skip", p.skip)
	return req.Interface()
}

// pages returns a method that gets one page after another, up to the limit.
func (a *App) pages(method protoreflect.MethodDescriptor, p Paging) signin.Method[proto.Message, page] {
	left := p.limit
	return func(ctx context.Context, req proto.Message, _ ...grpc.CallOption) (page, error) {
		size := min(cmp.Or(p.pageSize, maxPage), maxPage)
		if p.limit > 0 {
			size = min(size, left)
		}
		Put(req.ProtoReflect(), "page_size", size)
		got, err := a.page(ctx, method, req)
		if left -= int32(len(got.items)); p.limit > 0 && left <= 0 {
			got.next = ""
		}
		return got, err
	}
}

// Items iterates over the items of all pages.
func (a *App) Items(
	ctx context.Context, method protoreflect.MethodDescriptor, req protoreflect.Message, p Paging,
) iter.Seq2[protoreflect.Message, error] {
	items := func(p page) []protoreflect.Message { return p.items }
	return holdfast.All(ctx, a.pages(method, p), p.set(req), items)
}

func (a *App) page(ctx context.Context, method protoreflect.MethodDescriptor, req proto.Message) (page, error) {
	resp, err := a.callMethod(ctx, method, req, pagingFlags)
	if err != nil {
		return page{}, err
	}
	fields := method.Output().Fields()
	got := page{answer: resp, next: resp.Get(fields.ByName("next_page_token")).String()}
	for list, i := resp.Get(fields.ByNumber(1)).List(), 0; i < list.Len(); i++ {
		got.items = append(got.items, list.Get(i).Message())
	}
	if fd := fields.ByName("incomplete"); fd != nil && fd.Kind() == protoreflect.BoolKind {
		got.incomplete = resp.Get(fd).Bool()
	}
	return got, nil
}

// callMethod is like signin.Call, but takes the method's descriptor.
func (a *App) callMethod(
	ctx context.Context, method protoreflect.MethodDescriptor, req proto.Message, flags map[string]string,
) (protoreflect.Message, error) {
	resp := NewMessage(method.Output())
	name := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	if err := a.Invoke(ctx, name, req, resp.Interface()); err != nil {
		return nil, signin.RefusedIn(ctx, err, flags)
	}
	return resp, nil
}

// NewMessage returns an empty message.
func NewMessage(d protoreflect.MessageDescriptor) protoreflect.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	problem.Must(err)
	return t.New()
}
