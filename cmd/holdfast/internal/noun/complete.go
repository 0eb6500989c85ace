package noun

import (
	"cmp"
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
)

// A person waits for a completion. So a completion that fails, or that takes longer than
// completionTime, is omitted.
const (
	completionTime  = 1500 * time.Millisecond
	completionLimit = maxPage
)

// CompleteWords completes a flag with one of the words.
func CompleteWords(cmd *cobra.Command, flag string, words []string) {
	problem.Must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// CompleteNames completes a flag with the result of names, or with nothing if names
// fails.
func CompleteNames(cmd *cobra.Command, flag string, names func() ([]string, error)) {
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		words, err := names()
		if err != nil {
			words = nil
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	problem.Must(cmd.RegisterFlagCompletionFunc(flag, complete))
}

// CompleteArgs completes the first argument.
func (a *App) CompleteArgs(n Noun) cobra.CompletionFunc {
	return a.CompleteQuestion(func() Noun { return n })
}

// CompleteFlag completes the UID, name or path of a resource.
func (a *App) CompleteFlag(n Noun) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		words, directive := a.candidates(ctx, n, toComplete)
		return words, directive | cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteQuestion completes arguments that identify resources of different nouns. If an
// argument's noun is nil, it completes a capability.
func (a *App) CompleteQuestion(args ...func() Noun) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch i := len(given); {
		case i >= len(args):
			return nil, cobra.ShellCompDirectiveNoFileComp
		case args[i] == nil:
			return output.EnumWords(capabilitiespb.Capability(0).Descriptor()), cobra.ShellCompDirectiveNoFileComp
		default:
			return a.CompleteFlag(args[i]())(cmd, given, toComplete)
		}
	}
}

var uidStart = regexp.MustCompile(`^[0-9a-f]{6,}(/[0-9a-f]*)*$`)

// candidates returns the words that start with typed.
func (a *App) candidates(ctx context.Context, n Noun, typed string) ([]string, cobra.ShellCompDirective) {
	if n.Named != nil {
		n = n.Named()
	}
	if n.Kind == Identities && typed != "" && !strings.Contains(typed, "/") {
		words := a.peopleWords(ctx, typed)
		word := func(m protoreflect.Message) string { return described(nameOf(m), m, "uid") }
		workloads := a.words(ctx, n, nil, word, typed)
		return append(words, workloads...), 0
	}
	if !n.hasName() || uidStart.MatchString(typed) {
		return a.words(ctx, n, nil, func(m protoreflect.Message) string {
			return described(UIDOf(m), m, "name")
		}, typed), 0
	}
	if i := strings.LastIndexByte(typed, '/'); i >= 0 {
		parent, err := a.groupAt(ctx, strings.FieldsFunc(typed[:i], func(r rune) bool { return r == '/' }))
		if err != nil {
			return nil, 0
		}
		below := func(m protoreflect.Message) string { return described(typed[:i+1]+nameOf(m), m, "uid") }
		words := a.words(ctx, n, &parent, below, typed)
		if n.Use != Groups().Use && parent != "" { // the path may continue with a group
			deeper := func(m protoreflect.Message) string { return typed[:i+1] + nameOf(m) + "/" }
			return append(words, a.words(ctx, Groups(), &parent, deeper, typed)...), cobra.ShellCompDirectiveNoSpace
		}
		return words, 0
	}
	return a.words(ctx, n, nil, func(m protoreflect.Message) string { return described(nameOf(m), m, "uid") }, typed), 0
}

// peopleWords returns the e-mail addresses and names of people that contain typed. Capitals do not matter.
func (a *App) peopleWords(ctx context.Context, typed string) (words []string) {
	list := accesspb.NewAccessServiceClient(a).ListPeople
	found, err := list(ctx, &accesspb.ListPeopleRequest{Query: typed, PageSize: completionLimit})
	if err != nil {
		return nil
	}
	contains := func(text, part string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(part)) }
	for _, p := range found.GetPeople() {
		name := cmp.Or(p.GetDisplayName(), p.GetName())
		for _, email := range p.GetEmails() {
			if contains(email, typed) {
				words = append(words, email+"\t"+name)
			}
		}
		if contains(name, typed) {
			words = append(words, name+"\t"+p.GetUid())
		}
	}
	return words
}

// described returns a word with the value of a field, which some shells show as its
// description.
func described(word string, m protoreflect.Message, field protoreflect.Name) string {
	if fd := m.Descriptor().Fields().ByName(field); fd != nil {
		return word + "\t" + m.Get(fd).String()
	}
	return word
}

func (a *App) words(
	ctx context.Context, n Noun, parent *string, word func(protoreflect.Message) string, typed string,
) (words []string) {
	method := n.Method("List")
	req := NewMessage(method.Input())
	childrenOf(req, parent)
	for m, err := range a.Items(ctx, method, req, Paging{limit: completionLimit}) {
		if err != nil {
			return nil
		}
		if w := word(m); strings.HasPrefix(w, typed) {
			words = append(words, w)
		}
	}
	return words
}
