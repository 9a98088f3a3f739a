package app

import (
	"context"
	"errors"
)

// DoctorOnFiles is the part of the doctor that asks nothing outside this
// machine: which roles a configuration is for, and what fails in its files.
func DoctorOnFiles(src Source) ([]Role, error) {
	c, err := LoadConfig(src.File, src.Set)
	if err != nil {
		return nil, err
	}
	d := &doctor{src: src, cfg: c, roles: c.serves()}
	errs := []error{validateAll(c, d.roles)}
	for _, f := range append(d.checkConfig(context.Background()), d.checkRules(context.Background())...) {
		if f.grade == gradeFail {
			errs = append(errs, errors.New(f.String()))
		}
	}
	return d.roles, errors.Join(errs...)
}
