//go:build !linux

package inspect_test

func probe() {}

func orphaned() {}
