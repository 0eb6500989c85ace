package api

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-dev/holdfast/fault"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// Version 1 is the same services in older words: ids for uids, lists without
// pages under the name items, and updates that replace the whole resource. Each
// method here turns its message into what a service takes, and nothing else.

// maxItems is how much a list of version 1 returns, which has no pages.
const maxItems = 10_000

// everything walks all the pages of a list. It returns
// fault.ResourceExhausted if there is more than an answer should hold.
func everything[T any](list func(page.Params) (page.Page[T], error)) ([]T, error) {
	var all []T
	p := page.Params{Size: page.MaxSize}
	for {
		got, err := list(p)
		if err != nil {
			return nil, err
		}
		all = append(all, got.Items...)
		switch {
		case got.Next == "":
			return all, nil
		case len(all) >= maxItems:
			return nil, fault.New(fault.ResourceExhausted,
				"Resource exhausted: version 1 lists at most %d items, and %d match; narrow the filter, or use v2beta1, which has pages", maxItems, got.Total)
		}
		p.Token = got.Next
	}
}

// placeV1 is where a filter of version 1 looks: by the place filter that all
// versions have, and by an id.
func placeV1(u *commonpb.UIDPFilter, id string) resource.PlaceFilter {
	f := placeIn(u)
	if id != "" {
		f.IDs = append(f.IDs, resource.UID(id))
	}
	return f
}

// recode copies a message into one of another type whose fields have the same
// numbers and types.
func recode[T proto.Message](from proto.Message, to T) (T, error) {
	b, err := proto.Marshal(from)
	if err == nil {
		err = proto.Unmarshal(b, to)
	}
	if err != nil {
		return to, fmt.Errorf("recode %s: %w", from.ProtoReflect().Descriptor().FullName(), err)
	}
	return to, nil
}

// remove runs a delete of version 1 on the resource of an id.
func remove(ctx context.Context, field, id string, del func(context.Context, resource.UID) error) error {
	uid, err := resource.ParseUID(field, id)
	if err != nil {
		return err
	}
	return del(ctx, uid)
}
