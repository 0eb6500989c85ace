package advisory

import (
	"context"
	"io"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// Export writes the advisories that match a filter and on which the caller holds advisories.list, ordered by UID. If
// the filter or the format is invalid, it writes nothing and returns fault.InvalidArgument.
func (s *Service) Export(
	ctx context.Context, f vuln.AdvisoryFilter, to format.Format, o format.Options, w io.Writer,
) error {
	reach, err := s.reach(ctx, f)
	if err != nil {
		return err
	}
	o.Time = s.now()
	out, err := format.NewWriter(w, to, o)
	if err != nil {
		return err
	}
	p := page.Request{Size: page.MaxSize, Order: byUID}
	for {
		got, err := s.store.Advisories(ctx, reach, f, p, true)
		if err != nil {
			return err
		}
		for _, a := range got.Items {
			if err := out.Write(a); err != nil {
				return err
			}
		}
		if got.Last == nil {
			return out.Close()
		}
		p.After = got.Last
	}
}
