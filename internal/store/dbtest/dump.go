package dbtest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dump"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A RowSet contains the rows of each table, as sorted texts.
type RowSet map[string][]string

// Dump returns a snapshot of a database, and its rows as values and as texts.
func Dump(t testing.TB, s *store.DB) (d *dump.Snapshot, rows map[string][][]any, texts RowSet) {
	t.Helper()
	rows, texts = map[string][][]any{}, RowSet{}
	testkit.Must(t, dump.Read(t.Context(), s, func(got *dump.Snapshot) error {
		d = got
		for _, table := range got.Tables {
			if err := got.Rows(t.Context(), table, func(row []any) error {
				row = slices.Clone(row)
				rows[table.Name] = append(rows[table.Name], row)
				named := map[string]string{}
				for i, c := range table.Columns {
					named[c.Name] = fmt.Sprintf("%T %v", row[i], row[i])
				}
				texts[table.Name] = append(texts[table.Name], fmt.Sprint(named))
				return nil
			}); err != nil {
				return err
			}
			slices.Sort(texts[table.Name])
		}
		return nil
	}))
	return d, rows, texts
}

// Load fills a database with rows.
func Load(ctx context.Context, url string, d *dump.Snapshot, rows map[string][][]any) error {
	return dump.Load(ctx, url, d, func(l *dump.Loader) error {
		for _, table := range d.Tables {
			left := rows[table.Name]
			_, err := l.Fill(ctx, table, func() ([]any, error) {
				if len(left) == 0 {
					return nil, io.EOF
				}
				row := left[0]
				left = left[1:]
				return row, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
