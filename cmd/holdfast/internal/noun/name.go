package noun

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

const (
	maxLookup    = 500 // maximum number of UIDs that the server accepts in one call
	patience     = 2 * time.Second
	unknownGroup = "..."
)

// names returns a function that looks up the names of UIDs, 500 per call. It omits
// resources that the caller may not see. If the server does not answer, it returns the
// names found so far, because people can also work with UIDs.
func (a *App) names(ctx context.Context) output.Names {
	return func(uids []string) map[string]output.Name {
		found := map[string]output.Name{}
		uids = slices.DeleteFunc(slices.Clone(uids), func(uid string) bool { return !settings.IsUID(uid) })
		for chunk := range slices.Chunk(uids, maxLookup) {
			got, err := accesspb.NewAccessServiceClient(a).LookupNames(ctx, &accesspb.LookupNamesRequest{Uids: chunk})
			if err != nil {
				return found
			}
			for _, n := range got.GetNames() {
				title := cmp.Or(n.GetDisplayName(), n.GetName())
				found[n.GetUid()] = output.Name{Title: title, Path: n.GetPath(), Kind: n.GetKind()}
			}
		}
		return found
	}
}

// Called looks up UIDs and returns a function that returns the name of each. An unknown
// name is the UID itself.
func (a *App) Called(ctx context.Context, uids ...string) output.Called {
	known := a.names(ctx)(uids)
	return func(uid string) output.Name {
		n := known[uid]
		return output.Name{Title: cmp.Or(n.Title, uid), Path: cmp.Or(n.Path, uid), Kind: n.Kind}
	}
}

var uidInText = regexp.MustCompile(`\b[0-9a-f]{40}(/[0-9a-f]{16})*\b`)

// nameUIDs replaces the UIDs in a message of the server with paths, if the caller may see
// the resources. In a hint, which people copy, it replaces only the UIDs of groups whose
// path has no space.
func (a *App) nameUIDs(ctx context.Context, p *problem.Problem) {
	if p.Code != problem.ExitDenied && p.Code != problem.ExitError || !uidInText.MatchString(p.Text) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	uids := uidInText.FindAllString(p.Text, -1)
	for _, hint := range p.Hints {
		uids = append(uids, uidInText.FindAllString(hint, -1)...)
	}
	called := a.Called(ctx, uids...)
	path := func(uid string) string { return called(uid).Path }
	p.Text = uidInText.ReplaceAllStringFunc(p.Text, path)
	for i, hint := range p.Hints {
		p.Hints[i] = uidInText.ReplaceAllStringFunc(hint, func(uid string) string {
			if n := called(uid); n.Kind == Groups().Kind && !strings.Contains(n.Path, " ") {
				return n.Path
			}
			return uid
		})
	}
}
